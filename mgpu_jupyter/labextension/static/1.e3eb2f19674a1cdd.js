"use strict";(self.rspackChunk_mgpu_labextension=self.rspackChunk_mgpu_labextension||[]).push([[1],{27(o,e,p){var r=p(28),a=p.n(r),i=p(29),t=(p.n(i))()(a());t.push([o.id,`/* Colours follow the theme; what is ours is mixed from its variables. */
:root {
  --mgpu-ground: var(--jp-layout-color1);
  --mgpu-mine: var(--jp-brand-color1);
  --mgpu-mine-pale: color-mix(in srgb, var(--mgpu-mine) 18%, var(--jp-layout-color1));
  --mgpu-others: var(--jp-layout-color4);
  --mgpu-outside: var(--jp-warn-color0);
  --mgpu-bad: var(--jp-error-color1);
  --mgpu-bad-pale: color-mix(in srgb, var(--mgpu-bad) 9%, var(--jp-layout-color1));
  --mgpu-free: #8a8a8a;
  --mgpu-closed: var(--jp-border-color1);
  --mgpu-mem: var(--jp-inverse-layout-color3);
  --mgpu-track: var(--jp-layout-color2);
  --mgpu-font2: calc(var(--jp-ui-font-size1) * 0.923);
}

body[data-jp-theme-light="false"] {
  --mgpu-mine-pale: color-mix(in srgb, var(--mgpu-mine) 24%, var(--jp-layout-color1));
  --mgpu-others: #9a9a9a;
  --mgpu-outside: #f57c00;
  --mgpu-bad-pale: color-mix(in srgb, var(--mgpu-bad) 14%, var(--jp-layout-color1));
  --mgpu-closed: #555555;
  --mgpu-mem: #bdbdbd;
  --mgpu-track: #424242;
}

body[data-jp-theme-name="JupyterLab Dark High Contrast"] {
  --mgpu-mine-pale: color-mix(in srgb, var(--mgpu-mine) 25%, var(--jp-layout-color1));
  --mgpu-others: #e0e0e0;
  --mgpu-free: #ffffff;
  --mgpu-closed: #bdbdbd;
  --mgpu-mem: #ffffff;
  --mgpu-track: #333333;
}

/* --- what all views share ---------------------------------------------------- */

.mgp-panel,
.mgp-view,
.mgp-card,
.mgp-status {
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
}

.mgp-panel *,
.mgp-view *,
.mgp-card * {
  box-sizing: border-box;
}

.mgp-scroll {
  overflow: auto;
}

.mgp-second {
  color: var(--jp-ui-font-color2);
  font-size: var(--mgpu-font2);
}

.mgp-number,
.mgp-big,
.mgp-facts dd {
  font-variant-numeric: tabular-nums;
}

.mgp-name {
  font-weight: 500;
}

.mgp-big {
  font-size: var(--jp-ui-font-size3);
  font-weight: 600;
}

.mgp-panel code,
.mgp-view code,
.mgp-card code {
  background: none;
  color: inherit;
  font-family: var(--jp-code-font-family);
  font-size: var(--mgpu-font2);
  padding: 0;
}

.mgp-button {
  align-items: center;
  background: var(--jp-layout-color1);
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  color: var(--jp-ui-font-color1);
  cursor: pointer;
  display: inline-flex;
  font: inherit;
  gap: 6px;
  min-height: 24px;
  padding: 0 10px;
  white-space: nowrap;
}

.mgp-button:hover {
  background: var(--jp-layout-color2);
}

.mgp-button:disabled {
  cursor: default;
  opacity: 0.5;
}

.mgp-button.mgp-mod-primary {
  background: var(--jp-accept-color-normal, #1976d2);
  border-color: transparent;
  color: #ffffff;
  font-weight: 500;
}

.mgp-button.mgp-mod-primary:hover {
  background: var(--jp-accept-color-hover, #1565c0);
}

.mgp-icon-button {
  align-items: center;
  background: none;
  border: 0;
  border-radius: var(--jp-border-radius);
  color: var(--jp-ui-font-color2);
  cursor: pointer;
  display: inline-flex;
  height: 24px;
  justify-content: center;
  padding: 0;
  width: 24px;
}

.mgp-icon-button:hover {
  background: var(--jp-layout-color2);
  color: var(--jp-ui-font-color1);
}

.mgp-link {
  background: none;
  border: 0;
  color: var(--jp-content-link-color, var(--jp-brand-color0));
  cursor: pointer;
  font: inherit;
  padding: 0;
  text-align: left;
}

.mgp-link:hover {
  text-decoration: underline;
}

.mgp-link.mgp-name {
  color: inherit;
  font-weight: 500;
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.mgp-panel :focus-visible,
.mgp-view :focus-visible,
.mgp-status :focus-visible {
  outline: 2px solid var(--jp-focus-outline-color, var(--jp-brand-color1));
  outline-offset: 2px;
}

.mgp-glyph {
  flex: none;
  vertical-align: -0.15em;
}

.mgp-glyph.mgp-mod-mine {
  color: var(--mgpu-mine);
}

.mgp-glyph.mgp-mod-warn {
  color: var(--mgpu-outside);
}

.mgp-glyph.mgp-mod-bad {
  color: var(--mgpu-bad);
}

.mgp-glyph-hole {
  stroke: var(--mgpu-ground);
}

.mgp-buttons {
  display: flex;
  flex-wrap: wrap;
  gap: 8px;
  margin-top: 8px;
}

/* --- tiles --------------------------------------------------------------------- */

.mgp-tile {
  display: block;
}

.mgp-tile-border {
  fill: none;
  stroke: var(--mgpu-free);
  stroke-width: 1;
}

.mgp-tile-border.mgp-mod-mine {
  stroke: var(--mgpu-mine);
}

.mgp-tile-border.mgp-mod-others {
  stroke: var(--mgpu-others);
}

.mgp-tile-border.mgp-mod-outside {
  stroke: var(--mgpu-outside);
}

.mgp-tile-border.mgp-mod-unhealthy {
  stroke: var(--mgpu-bad);
}

.mgp-tile-border.mgp-mod-closed {
  stroke: var(--mgpu-closed);
}

.mgp-tile-border.mgp-mod-simulated {
  stroke-dasharray: 2.5 2;
}

.mgp-tile-border.mgp-mod-pick {
  fill: var(--mgpu-mine-pale);
  stroke: var(--mgpu-mine);
  stroke-dasharray: none;
  stroke-width: 2;
}

.mgp-tile-tick {
  fill: none;
  stroke: var(--mgpu-mine);
  stroke-width: 2;
}

.mgp-tile-cross {
  stroke: var(--mgpu-bad);
  stroke-width: 1.8;
}

.mgp-tile-dash {
  stroke: var(--jp-ui-font-color2);
  stroke-width: 1.3;
}

.mgp-tile-cut {
  stroke: var(--mgpu-ground);
  stroke-width: 1;
}

.mgp-tile-track {
  fill: var(--mgpu-track);
}

.mgp-tile-memory {
  fill: var(--mgpu-mem);
}

@media (prefers-reduced-motion: no-preference) {
  .mgp-panel .mgp-tile-level {
    transition:
      y 200ms steps(3),
      height 200ms steps(3);
  }
}

.mgp-mod-stale .mgp-tiles,
.mgp-mod-stale .mgp-bar,
.mgp-mod-stale .mgp-legend svg,
.mgp-mod-stale .mgp-spark {
  filter: saturate(30%);
  opacity: 0.5;
}

.mgp-mod-stale {
  color: var(--jp-ui-font-color2);
}

.mgp-tile-cell.mgp-mod-dim {
  opacity: 0.25;
}

/* --- sparklines ------------------------------------------------------------------ */

.mgp-spark {
  display: block;
}

.mgp-spark-line {
  fill: none;
  stroke: var(--mgpu-mem);
  stroke-width: 1.2;
}

.mgp-spark-area {
  fill: color-mix(in srgb, var(--mgpu-mem) 15%, transparent);
}

.mgp-spark.mgp-mod-mine .mgp-spark-line {
  stroke: var(--mgpu-mine);
}

.mgp-spark.mgp-mod-mine .mgp-spark-area {
  fill: var(--mgpu-mine-pale);
}

.mgp-spark-other {
  fill: none;
  stroke: var(--mgpu-mem);
  stroke-dasharray: 3 2;
  stroke-width: 1.2;
}

/* --- the icon, drawn by lines -------------------------------------------------- */

[data-icon="@mgpu/labextension:gpu"] .jp-icon3,
[data-icon="@mgpu:labextension:gpu"] .jp-icon3 {
  fill: none !important;
  stroke: var(--jp-inverse-layout-color3) !important;
}

.mgp-mod-stale .mgp-job-glyph .mgp-glyph {
  color: inherit;
}
`,""]),p.d(e,{},{A:t})},30(o,e,p){var r=p(28),a=p.n(r),i=p(29),t=(p.n(i))()(a());t.push([o.id,`.mgp-panel {
  background: var(--jp-layout-color1);
  min-width: 0;
}

.mgp-panel .jp-SidePanel-header,
.mgp-panel .jp-SidePanel-toolbar {
  min-height: 0;
}

.mgp-head {
  align-items: center;
  display: flex;
  gap: 4px;
  height: 40px;
  padding: 0 12px;
}

.mgp-drawn {
  width: 100%;
}

.mgp-space {
  flex: 1;
}

.mgp-panel .jp-AccordionPanel-title {
  box-shadow: none;
  height: 28px;
  line-height: 28px;
  padding: 0 8px 0 4px;
}

.mgp-panel .jp-AccordionPanel-title .lm-AccordionPanel-titleLabel {
  flex: none;
  font-size: var(--jp-ui-font-size0);
  font-weight: 600;
  letter-spacing: 0.04em;
  text-transform: uppercase;
}

.mgp-panel .jp-AccordionPanel-title:focus-visible {
  outline: 2px solid var(--jp-focus-outline-color, var(--jp-brand-color1));
  outline-offset: -2px;
}

.mgp-panel .jp-AccordionPanel-title .jp-Toolbar {
  background: none;
  border: 0;
  box-shadow: none;
  flex: 1;
  min-height: 0;
  padding: 0 4px;
}

.mgp-panel .jp-AccordionPanel-title .jp-Toolbar::part(positioning-region) {
  flex: 1;
  width: 100%;
}

.mgp-panel .jp-AccordionPanel-title .jp-Toolbar-item {
  flex: 1 1 100%;
  width: 100%;
  font-weight: 400;
  letter-spacing: 0;
  text-transform: none;
}

.mgp-mod-narrow .mgp-totals,
.mgp-mod-narrow .mgp-node,
.mgp-mod-narrow .mgp-reason,
.mgp-mod-narrow .mgp-rack,
.mgp-mod-narrow .mgp-job {
  padding-left: 8px;
  padding-right: 8px;
}

.mgp-mod-narrow .mgp-node-text {
  align-items: center;
  display: flex;
  gap: 2px;
  line-height: 20px;
}

.mgp-note-text {
  color: var(--jp-ui-font-color2);
  font-size: var(--mgpu-font2);
  font-variant-numeric: tabular-nums;
  line-height: 28px;
}

.mgp-live {
  color: var(--jp-ui-font-color2);
  display: block;
  flex: 1;
  font-size: var(--mgpu-font2);
  font-variant-numeric: tabular-nums;
  line-height: 28px;
  text-align: right;
}

.mgp-live i {
  border-radius: 50%;
  display: inline-block;
  height: 7px;
  margin-right: 3px;
  vertical-align: 1px;
  width: 7px;
}

.mgp-live.mgp-mod-live i {
  background: var(--jp-success-color1);
}

.mgp-live.mgp-mod-stale i,
.mgp-live.mgp-mod-signed-out i {
  border: 2px solid var(--mgpu-outside);
}

.mgp-live.mgp-mod-stopped i {
  background: var(--mgpu-bad);
  border-radius: 0;
}

/* --- cluster ----------------------------------------------------------------- */

.mgp-totals {
  border-bottom: 1px solid var(--jp-border-color2);
  padding: 8px 12px;
}

.mgp-headline {
  align-items: baseline;
  display: flex;
  font-variant-numeric: tabular-nums;
  justify-content: space-between;
  margin-bottom: 4px;
}

.mgp-bar {
  display: block;
  margin-bottom: 6px;
}

.mgp-legend {
  display: flex;
  flex-wrap: wrap;
  gap: 2px 14px;
}

.mgp-legend button {
  align-items: center;
  background: none;
  border: 0;
  border-radius: var(--jp-border-radius);
  color: inherit;
  cursor: pointer;
  display: inline-flex;
  font: inherit;
  font-variant-numeric: tabular-nums;
  gap: 5px;
  min-height: 20px;
  padding: 0;
}

.mgp-legend button[aria-pressed="true"] {
  font-weight: 600;
}

.mgp-busy {
  align-items: center;
  display: flex;
  gap: 8px;
  justify-content: space-between;
  margin-top: 6px;
}

.mgp-busy > span {
  flex: none;
}

.mgp-busy .mgp-spark {
  flex: 1;
  min-width: 0;
}

.mgp-percent {
  display: inline-block;
  font-variant-numeric: tabular-nums;
  min-width: 5ch;
}

.mgp-filter {
  display: flex;
  gap: 6px;
  padding: 8px 12px 4px;
}

.mgp-search {
  align-items: center;
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  color: var(--jp-ui-font-color2);
  display: flex;
  flex: 1;
  gap: 4px;
  height: 24px;
  min-width: 0;
  padding: 0 6px;
}

.mgp-search:focus-within {
  outline: 2px solid var(--jp-focus-outline-color, var(--jp-brand-color1));
}

.mgp-search input {
  background: none;
  border: 0;
  color: var(--jp-ui-font-color1);
  flex: 1;
  font: inherit;
  min-width: 0;
  outline: 0;
}

.mgp-filter select {
  background: var(--jp-layout-color1);
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  color: inherit;
  font: inherit;
  height: 24px;
}

.mgp-wall {
  padding: 6px 0;
}

.mgp-rack,
.mgp-reason {
  color: var(--jp-ui-font-color2);
  font-size: var(--mgpu-font2);
  line-height: 18px;
  padding: 2px 12px;
}

.mgp-rack {
  padding-top: 4px;
}

.mgp-node {
  align-items: flex-start;
  display: flex;
  gap: 8px;
  justify-content: space-between;
  padding: 3px 12px;
}

.mgp-node-text {
  flex: 1;
  line-height: 14px;
  min-width: 0;
}

.mgp-node-text .mgp-link {
  display: block;
  max-width: 100%;
}

.mgp-note {
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.mgp-tiles {
  display: flex;
  flex: none;
  flex-wrap: wrap;
}

.mgp-tile-cell {
  cursor: pointer;
}

.mgp-panel .mgp-tile-cell:focus-visible {
  border-radius: 2px;
  outline-offset: 1px;
}

.mgp-none {
  color: var(--jp-ui-font-color2);
  margin: 0;
  padding: 12px;
}

/* --- jobs ---------------------------------------------------------------------- */

.mgp-switch {
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  display: flex;
  margin: 8px 12px 4px;
}

.mgp-switch button {
  background: var(--jp-layout-color1);
  border: 0;
  border-bottom: 2px solid transparent;
  color: inherit;
  cursor: pointer;
  flex: 1;
  font: inherit;
  font-variant-numeric: tabular-nums;
  height: 24px;
}

.mgp-switch button[aria-checked="true"] {
  background: var(--jp-layout-color2);
  border-bottom-color: var(--jp-brand-color1);
  font-weight: 600;
}

.mgp-changes {
  display: block;
  padding: 2px 12px;
}

.mgp-job {
  border-bottom: 1px solid var(--jp-border-color3, var(--jp-border-color2));
  display: grid;
  grid-template: "glyph head end" 20px ". line line" 1fr / 20px minmax(0, 1fr) auto;
  height: 100%;
  padding: 3px 12px;
}

.mgp-job:hover,
.mgp-job:focus-within {
  background: var(--jp-layout-color2);
}

.mgp-panel .mgp-job:focus-visible {
  background: var(--jp-notebook-multiselected-color, var(--jp-layout-color2));
  outline-offset: -2px;
}

.mgp-job:focus-visible .mgp-job-line {
  color: var(--jp-ui-font-color1);
}

.mgp-job[data-drop="before"] {
  box-shadow: inset 0 2px 0 var(--jp-brand-color1);
}

.mgp-job[data-drop="behind"] {
  box-shadow: inset 0 -2px 0 var(--jp-brand-color1);
}

.mgp-job-glyph {
  grid-area: glyph;
}

.mgp-job-head {
  grid-area: head;
  overflow: hidden;
  white-space: nowrap;
}

.mgp-job-end {
  display: flex;
  grid-area: end;
  justify-content: flex-end;
  min-width: 48px;
}

.mgp-actions {
  display: none;
  margin-top: -2px;
}

.mgp-job:hover .mgp-actions,
.mgp-job:focus .mgp-actions,
.mgp-job:focus-within .mgp-actions {
  display: flex;
}

.mgp-job:hover .mgp-job-time,
.mgp-job:focus .mgp-job-time,
.mgp-job:focus-within .mgp-job-time {
  display: none;
}

.mgp-job-line {
  grid-area: line;
  line-height: 16px;
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.mgp-job.mgp-mod-tall .mgp-job-line {
  -webkit-box-orient: vertical;
  display: -webkit-box;
  -webkit-line-clamp: 2;
  line-clamp: 2;
  white-space: normal;
}

/* --- banners, first run, skeletons --------------------------------------------- */

.mgp-banner {
  border-bottom: 1px solid var(--jp-border-color2);
  display: flex;
  gap: 10px;
  line-height: 1.35;
  padding: 8px 12px;
}

.mgp-banner.mgp-mod-warn {
  background: color-mix(in srgb, var(--mgpu-outside) 10%, var(--jp-layout-color1));
}

.mgp-banner.mgp-mod-bad {
  background: color-mix(in srgb, var(--mgpu-bad) 10%, var(--jp-layout-color1));
}

.mgp-banner details {
  margin-top: 6px;
}

.mgp-details {
  overflow-wrap: anywhere;
  white-space: pre-wrap;
}

.mgp-first {
  padding: 16px;
}

.mgp-first h3 {
  font-size: var(--jp-ui-font-size2, 1.1em);
  font-weight: 600;
  margin: 8px 0 4px;
}

.mgp-join p {
  margin: 6px 0;
}

.mgp-join-line {
  background: var(--jp-layout-color2);
  border: 1px solid var(--jp-border-color2);
  font-family: var(--jp-code-font-family);
  font-size: var(--mgpu-font2);
  margin: 8px 0;
  overflow-wrap: anywhere;
  padding: 8px;
  user-select: all;
  white-space: pre-wrap;
}

.mgp-skeleton {
  padding: 8px 12px;
}

.mgp-skeleton i,
.mgp-skeleton u {
  background: var(--mgpu-track);
  border-radius: 2px;
  display: block;
}

.mgp-skeleton-node {
  height: 32px;
  position: relative;
}

.mgp-skeleton-node i {
  height: 9px;
  margin-bottom: 5px;
  width: 55px;
}

.mgp-skeleton-node span {
  display: flex;
  gap: 3px;
  position: absolute;
  right: 0;
  top: 0;
}

.mgp-skeleton-node u {
  height: 24px;
  width: 21px;
}

.mgp-skeleton-job {
  height: 44px;
  padding: 6px 0 0 20px;
}

.mgp-skeleton-job i {
  height: 10px;
  margin-bottom: 8px;
  width: 50%;
}

.mgp-skeleton-job i + i {
  width: 85%;
}

/* --- the card of a GPU ----------------------------------------------------------- */

.mgp-card {
  background: var(--jp-layout-color1);
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  box-shadow: var(--jp-elevation-z6);
  padding: 10px 12px;
  position: fixed;
  z-index: 10000;
}

.mgp-card-head {
  align-items: center;
  display: flex;
  gap: 6px;
}

.mgp-card-head b {
  flex: 1;
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.mgp-card-sentence {
  margin: 4px 0;
}

.mgp-card .mgp-spark {
  margin: 6px 0;
}

.mgp-facts {
  display: grid;
  gap: 3px 8px;
  grid-template-columns: 90px minmax(0, 1fr);
  margin: 8px 0 0;
}

.mgp-facts dt {
  color: var(--jp-ui-font-color2);
}

.mgp-facts dd {
  margin: 0;
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

/* --- status bar ------------------------------------------------------------------ */

.mgp-status-button {
  align-items: center;
  background: none;
  border: 0;
  color: inherit;
  cursor: pointer;
  display: flex;
  font: inherit;
  gap: 5px;
  height: 24px;
  padding: 0 6px;
}

/* --- forced colours: patterns stay, colours become the system's ------------------- */

@media (forced-colors: active) {
  :root {
    --mgpu-ground: Canvas;
    --mgpu-mine: Highlight;
    --mgpu-mine-pale: Canvas;
    --mgpu-others: CanvasText;
    --mgpu-outside: CanvasText;
    --mgpu-bad: CanvasText;
    --mgpu-bad-pale: Canvas;
    --mgpu-free: CanvasText;
    --mgpu-closed: CanvasText;
    --mgpu-mem: CanvasText;
    --mgpu-track: Canvas;
  }

  .mgp-tiles,
  .mgp-bar,
  .mgp-legend svg {
    forced-color-adjust: none;
  }
}

.mgp-live-region {
  clip-path: inset(50%);
  height: 1px;
  overflow: hidden;
  position: absolute;
  white-space: nowrap;
  width: 1px;
}

.mgp-dialog {
  max-width: 560px;
  min-width: 420px;
}

.mgp-ask label {
  display: grid;
  gap: 4px;
  margin-bottom: 12px;
}

.mgp-ask [role="alert"] {
  color: var(--jp-ui-font-color1);
}

.mgp-ask [aria-invalid="true"] {
  border-color: var(--mgpu-bad);
}
`,""]),p.d(e,{},{A:t})},31(o,e,p){var r=p(28),a=p.n(r),i=p(29),t=(p.n(i))()(a());t.push([o.id,`.mgp-view {
  background: var(--jp-layout-color1);
}

.mgp-title {
  font-size: var(--jp-ui-font-size3);
  font-weight: 600;
  margin: 0;
}

.mgp-view h3 {
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
  margin: 0 0 8px;
}

.mgp-view h3 .mgp-second {
  font-weight: 400;
}

.mgp-view-head {
  border-bottom: 1px solid var(--jp-border-color2);
  padding: 12px 16px 8px;
}

.mgp-view-title {
  align-items: center;
  display: flex;
  flex-wrap: wrap;
  gap: 8px;
}

.mgp-asked-line {
  flex: 100 1 160px;
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.mgp-view-actions {
  display: flex;
  flex-wrap: wrap;
  gap: 8px;
  justify-content: flex-end;
  margin-left: auto;
}

.mgp-view-title .mgp-switch {
  margin: 0;
}

.mgp-view-title .mgp-switch button {
  padding: 0 10px;
  white-space: nowrap;
}

.mgp-badge {
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  font-size: var(--mgpu-font2);
  padding: 1px 6px;
}

.mgp-fact-row {
  display: flex;
  flex-wrap: wrap;
  gap: 8px 14px;
  margin: 10px 0 4px;
}

.mgp-fact-row dt {
  color: var(--jp-ui-font-color2);
  font-size: var(--mgpu-font2);
}

.mgp-fact-row dd {
  margin: 2px 0 0;
}

.mgp-fact-row > div + div {
  border-left: 1px solid var(--jp-border-color2);
  padding-left: 12px;
}

.mgp-tabs {
  border-bottom: 1px solid var(--jp-border-color2);
  display: flex;
  gap: 4px;
  overflow-x: auto;
  padding: 0 12px;
}

.mgp-tabs button {
  background: none;
  border: 0;
  border-bottom: 2px solid transparent;
  color: var(--jp-ui-font-color2);
  cursor: pointer;
  font: inherit;
  height: 32px;
  padding: 0 8px;
}

.mgp-tabs button[aria-selected="true"] {
  border-bottom-color: var(--jp-brand-color1);
  color: var(--jp-ui-font-color1);
  font-weight: 600;
}

.mgp-body {
  padding: 12px 16px;
}

.mgp-frame {
  border: 1px solid var(--jp-border-color2);
  margin-bottom: 12px;
  padding: 10px 12px;
}

.mgp-columns {
  display: flex;
  flex-wrap: wrap;
  gap: 12px;
}

.mgp-columns > :first-child {
  flex: 1 1 420px;
  min-width: 0;
}

.mgp-columns > aside {
  flex: 0 1 340px;
  min-width: 260px;
}

.mgp-columns.mgp-explain > aside {
  flex-basis: 356px;
}

.mgp-explain > :first-child > p {
  margin: 6px 0 12px;
}

.mgp-explain > aside > p,
.mgp-frame > p {
  margin: 0 0 8px;
}

.mgp-frame > p:last-child {
  margin-bottom: 0;
}

.mgp-frame > summary {
  cursor: pointer;
}

.mgp-frame[open] > summary {
  margin-bottom: 6px;
}

.mgp-tell label {
  align-items: flex-start;
  display: flex;
  gap: 6px;
  padding: 3px 0;
}

.mgp-plan {
  display: block;
  width: 100%;
}

.mgp-plan text {
  fill: var(--jp-ui-font-color1);
  font-size: 11px;
}

.mgp-plan g > .mgp-plot-grid + text {
  fill: var(--jp-ui-font-color2);
}

.mgp-plan-bar.mgp-mod-held {
  fill: url("#mgpu-others-above");
  stroke: var(--mgpu-others);
}

.mgp-plan-bar.mgp-mod-held.mgp-mod-mine {
  fill: var(--mgpu-mine-pale);
  stroke: var(--mgpu-mine);
}

.mgp-plan-bar.mgp-mod-this {
  fill: var(--mgpu-mine-pale);
  stroke: var(--mgpu-mine);
  stroke-dasharray: 3 2;
}

.mgp-plan-bar.mgp-mod-waiting {
  fill: var(--jp-layout-color2);
  stroke: var(--mgpu-others);
  stroke-dasharray: 3 2;
}

.mgp-plan-ground {
  fill: var(--mgpu-ground);
}

.mgp-plan-start {
  stroke: var(--mgpu-mine);
  stroke-width: 2;
}

.mgp-plan text.mgp-plan-when {
  fill: var(--jp-content-link-color, var(--jp-brand-color0));
  font-weight: 600;
}

.mgp-meter {
  background: var(--mgpu-track);
  display: block;
  height: 9px;
  width: 220px;
}

.mgp-meter i {
  background: var(--mgpu-mem);
  display: block;
  height: 100%;
}

.mgp-table tr.mgp-mod-chosen td {
  background: var(--jp-notebook-multiselected-color, var(--jp-layout-color2));
}

.mgp-glyph-column {
  width: 20px;
}

.mgp-table {
  border-collapse: collapse;
  font-size: var(--mgpu-font2);
  width: 100%;
}

.mgp-table th {
  color: var(--jp-ui-font-color2);
  font-weight: 400;
  text-align: left;
}

.mgp-table td,
.mgp-table th {
  border-bottom: 1px solid var(--jp-border-color3, var(--jp-border-color2));
  padding: 4px 6px;
}

.mgp-plain {
  list-style: none;
  margin: 0;
  padding: 0;
}

.mgp-plain li {
  padding: 3px 0;
}

.mgp-offer {
  align-items: center;
  display: flex;
  gap: 8px;
  justify-content: space-between;
}

.mgp-view .mgp-chip {
  background: var(--jp-layout-color1);
  border: 1px solid var(--jp-border-color1);
  border-radius: 12px;
  color: inherit;
  cursor: pointer;
  font: inherit;
  min-height: 24px;
  min-width: 24px;
  padding: 0 8px;
}

.mgp-chip[aria-pressed="true"],
.mgp-button[aria-pressed="true"] {
  border-color: var(--jp-brand-color1);
  box-shadow: inset 0 0 0 1px var(--jp-brand-color1);
}

.mgp-log {
  display: flex;
  flex-direction: column;
  padding: 0;
}

.mgp-log-bar {
  align-items: center;
  border-bottom: 1px solid var(--jp-border-color2);
  display: flex;
  flex-wrap: wrap;
  gap: 6px;
  padding: 6px 10px;
}

.mgp-log-bar .mgp-search {
  max-width: 260px;
}

.mgp-log-lines {
  font-family: var(--jp-code-font-family);
  font-size: var(--mgpu-font2);
  height: max(280px, calc(100vh - 480px));
  overflow: auto;
  padding: 4px 10px;
}

.mgp-log-line {
  display: flex;
  gap: 10px;
  height: 18px;
  line-height: 18px;
  white-space: pre;
}

.mgp-log-lines.mgp-mod-wrap .mgp-log-line {
  height: auto;
  overflow-wrap: anywhere;
  white-space: pre-wrap;
}

.mgp-log-rank,
.mgp-log-time {
  color: var(--jp-ui-font-color2);
  flex: none;
}

.mgp-log-time {
  width: 8ch;
}

.mgp-log-rank {
  border-right: 1px solid var(--jp-border-color2);
  overflow: hidden;
  padding-right: 8px;
  text-align: right;
  text-overflow: ellipsis;
  width: 6ch;
}

.mgp-log-fold {
  padding-left: 10ch;
}

.mgp-log-new {
  bottom: 6px;
  float: right;
  position: sticky;
}

.mgp-log-line mark {
  background: #ffe082;
  color: #000000;
}

.mgp-log-line mark.mgp-mod-current {
  outline: 2px solid var(--mgpu-outside);
}

.mgp-log-foot {
  display: flex;
  gap: 16px;
  border-top: 1px solid var(--jp-border-color2);
  padding: 4px 10px;
}

.mgp-gpu-row {
  align-items: center;
  display: grid;
  gap: 8px;
  font-size: var(--mgpu-font2);
  grid-template-columns: minmax(66px, 1fr) 4ch 88px 6ch 7ch;
  padding: 3px 0;
  white-space: nowrap;
}

.mgp-gpu-span {
  grid-column: 3 / -1;
  text-align: right;
}

.mgp-asked {
  font-size: var(--jp-ui-font-size2, 1.1em);
  margin: 4px 0 8px;
}

.mgp-used {
  display: flex;
  gap: 2px;
  margin-bottom: 8px;
}

.mgp-used i {
  background: linear-gradient(var(--mgpu-mine), var(--mgpu-mine)) no-repeat left;
  border: 1px solid var(--mgpu-mine);
  flex: 1;
  height: 13px;
}

.mgp-timeline {
  display: flex;
  position: relative;
}

.mgp-timeline > div {
  flex: 1 1 156px;
  min-width: 0;
  overflow: hidden;
  white-space: nowrap;
}

.mgp-timeline > div.mgp-mod-left {
  flex-basis: 220px;
}

.mgp-timeline i {
  border: 1px solid var(--jp-border-color1);
  border-left: 2px solid var(--jp-ui-font-color1);
  display: block;
  height: 16px;
  margin: 4px 0;
}

.mgp-timeline .mgp-mod-queued i {
  background: var(--jp-layout-color2);
}

.mgp-timeline .mgp-mod-starting i {
  background: repeating-linear-gradient(135deg, var(--mgpu-others) 0 1px, transparent 1px 4px);
}

.mgp-timeline .mgp-mod-running i {
  background: var(--mgpu-mine);
  border-color: var(--mgpu-mine);
  border-left-color: var(--jp-ui-font-color1);
}

.mgp-timeline .mgp-mod-left i {
  border-style: dashed;
  border-left-style: solid;
}

.mgp-timeline-end {
  top: 10px;
  position: absolute;
  right: 12px;
}

.mgp-far {
  float: right;
}

.mgp-keys {
  white-space: pre;
}

.mgp-right {
  text-align: right !important;
}

.mgp-accent {
  color: var(--jp-content-link-color, var(--jp-brand-color0));
}

.mgp-badge.mgp-mod-mine {
  border-color: var(--mgpu-mine);
  color: var(--jp-content-link-color, var(--jp-brand-color0));
}

.mgp-submit {
  padding: 16px;
}

.mgp-field {
  display: flex;
  gap: 12px;
  margin: 12px 0;
}

.mgp-field-label {
  flex: none;
  padding-top: 4px;
  width: 90px;
}

.mgp-field > div {
  flex: 1;
  min-width: 0;
}

.mgp-field .mgp-switch {
  margin: 0 0 6px;
  width: fit-content;
}

.mgp-field .mgp-switch button {
  padding: 0 12px;
  white-space: nowrap;
}

.mgp-field input[type="text"],
.mgp-field input[type="number"],
.mgp-field textarea {
  background: var(--jp-input-background, var(--jp-layout-color1));
  border: 1px solid var(--jp-border-color1);
  color: inherit;
  font: inherit;
  min-height: 28px;
  padding: 3px 8px;
}

.mgp-field input[type="number"] {
  width: 80px;
}

.mgp-field textarea {
  font-family: var(--jp-code-font-family);
  width: 100%;
}

.mgp-field input[aria-invalid="true"] {
  border-color: var(--mgpu-bad);
}

.mgp-field select {
  background: var(--jp-layout-color1);
  border: 1px solid var(--jp-border-color1);
  color: inherit;
  font: inherit;
  height: 28px;
}

.mgp-field .mgp-code {
  font-family: var(--jp-code-font-family);
}

.mgp-field .mgp-wide {
  width: 100%;
}

.mgp-radio {
  display: inline-block;
  margin-right: 16px;
  padding-top: 4px;
}

.mgp-rule {
  border-top: 1px solid var(--jp-border-color2);
  padding-top: 12px;
}

.mgp-more > summary {
  cursor: pointer;
}

.mgp-submit kbd {
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  font-family: var(--jp-code-font-family);
  padding: 0 4px;
}

.mgp-caption .mgp-far {
  font-weight: 400;
  letter-spacing: 0;
  text-transform: none;
}

.mgp-pick {
  align-items: flex-start;
  display: grid;
  gap: 8px;
  grid-template-columns: minmax(0, 1fr) 189px minmax(0, 76px);
  padding: 3px 0;
}

.mgp-pick > .mgp-name,
.mgp-pick > .mgp-second {
  line-height: 22px;
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.mgp-picks .mgp-legend {
  border-top: 1px solid var(--jp-border-color2);
  margin-top: 6px;
  padding-top: 8px;
}

.mgp-picks .mgp-legend-entry {
  margin: 0;
}

.mgp-sizes {
  margin-bottom: 16px;
}

.mgp-columns.mgp-submit > aside {
  flex-basis: 380px;
}

.mgp-caption {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
  font-weight: 600;
  letter-spacing: 0.04em;
  margin-bottom: 6px;
  text-transform: uppercase;
}

.mgp-dry {
  display: flex;
  gap: 10px;
  min-height: 64px;
}

.mgp-dry.mgp-mod-old {
  opacity: 0.5;
}

.mgp-plots {
  display: flex;
  flex-wrap: wrap;
  gap: 12px;
}

.mgp-plot text,
.mgp-box text {
  fill: var(--jp-ui-font-color2);
  font-size: 11px;
}

.mgp-plot-grid {
  stroke: var(--jp-border-color2);
}

.mgp-plot-line {
  fill: none;
  stroke: var(--mgpu-mem);
}

.mgp-plot-area {
  fill: color-mix(in srgb, var(--mgpu-mem) 20%, transparent);
}

.mgp-plot-series.mgp-mod-mine .mgp-plot-area {
  fill: var(--mgpu-mine);
}

.mgp-plot-series.mgp-mod-mine .mgp-plot-line {
  stroke: var(--mgpu-mine);
}

.mgp-box line:not(.mgp-plot-grid) {
  stroke: var(--mgpu-mem);
}

.mgp-box rect {
  fill: var(--mgpu-track);
  stroke: var(--mgpu-mem);
}

.mgp-box line.mgp-mod-median:not(.mgp-plot-grid) {
  stroke: var(--mgpu-mine);
  stroke-width: 2;
}

.mgp-legend-entry {
  align-items: center;
  display: inline-flex;
  font-weight: 400;
  gap: 4px;
  margin-left: 12px;
}

.mgp-racks {
  display: flex;
  flex-wrap: wrap;
  gap: 16px 28px;
}

.mgp-rack-columns {
  display: flex;
  flex-wrap: wrap;
  gap: 3px;
}

.mgp-column {
  background: none;
  border: 0;
  color: var(--jp-ui-font-color2);
  cursor: pointer;
  display: flex;
  flex-direction: column;
  font-size: 9px;
  padding: 0;
}

.mgp-rack-head {
  display: flex;
  gap: 6px;
  margin-bottom: 4px;
}

.mgp-racks-head {
  align-items: flex-start;
  display: flex;
  flex-wrap: wrap;
  gap: 8px;
  margin-bottom: 8px;
}

.mgp-racks-head .mgp-switch {
  margin: 0;
}

.mgp-racks-head .mgp-switch button {
  padding: 0 10px;
}

.mgp-card-line {
  align-items: center;
  display: flex;
  gap: 6px;
  padding: 2px 0;
}

.mgp-column:hover,
.mgp-column:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
}
`,""]),p.d(e,{},{A:t})},29(o){o.exports=function(o){var e=[];return e.toString=function(){return this.map(function(e){var p="",r=void 0!==e[5];return e[4]&&(p+="@supports (".concat(e[4],") {")),e[2]&&(p+="@media ".concat(e[2]," {")),r&&(p+="@layer".concat(e[5].length>0?" ".concat(e[5]):""," {")),p+=o(e),r&&(p+="}"),e[2]&&(p+="}"),e[4]&&(p+="}"),p}).join("")},e.i=function(o,p,r,a,i){"string"==typeof o&&(o=[[null,o,void 0]]);var t={};if(r)for(var n=0;n<this.length;n++){var l=this[n][0];null!=l&&(t[l]=!0)}for(var m=0;m<o.length;m++){var g=[].concat(o[m]);r&&t[g[0]]||(void 0!==i&&(void 0===g[5]||(g[1]="@layer".concat(g[5].length>0?" ".concat(g[5]):""," {").concat(g[1],"}")),g[5]=i),p&&(g[2]&&(g[1]="@media ".concat(g[2]," {").concat(g[1],"}")),g[2]=p),a&&(g[4]?(g[1]="@supports (".concat(g[4],") {").concat(g[1],"}"),g[4]=a):g[4]="".concat(a)),e.push(g))}},e}},28(o){o.exports=function(o){return o[1]}},21(o){var e=[];function p(o){for(var p=-1,r=0;r<e.length;r++)if(e[r].identifier===o){p=r;break}return p}function r(o,r){for(var a={},i=[],t=0;t<o.length;t++){var n=o[t],l=r.base?n[0]+r.base:n[0],m=a[l]||0,g="".concat(l," ").concat(m);a[l]=m+1;var d=p(g),s={css:n[1],media:n[2],sourceMap:n[3],supports:n[4],layer:n[5]};if(-1!==d)e[d].references++,e[d].updater(s);else{var c=function(o,e){var p=e.domAPI(e);return p.update(o),function(e){e?(e.css!==o.css||e.media!==o.media||e.sourceMap!==o.sourceMap||e.supports!==o.supports||e.layer!==o.layer)&&p.update(o=e):p.remove()}}(s,r);r.byIndex=t,e.splice(t,0,{identifier:g,updater:c,references:1})}i.push(g)}return i}o.exports=function(o,a){var i=r(o=o||[],a=a||{});return function(o){o=o||[];for(var t=0;t<i.length;t++){var n=p(i[t]);e[n].references--}for(var l=r(o,a),m=0;m<i.length;m++){var g=p(i[m]);0===e[g].references&&(e[g].updater(),e.splice(g,1))}i=l}}},23(o){var e={};o.exports=function(o,p){var r=function(o){if(void 0===e[o]){var p=document.querySelector(o);if(window.HTMLIFrameElement&&p instanceof window.HTMLIFrameElement)try{p=p.contentDocument.head}catch(o){p=null}e[o]=p}return e[o]}(o);if(!r)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");r.appendChild(p)}},25(o){o.exports=function(o){var e=document.createElement("style");return o.setAttributes(e,o.attributes),o.insert(e,o.options),e}},24(o,e,p){o.exports=function(o){var e=p.nc;e&&o.setAttribute("nonce",e)}},22(o){o.exports=function(o){if("u"<typeof document)return{update:function(){},remove:function(){}};var e=o.insertStyleElement(o);return{update:function(p){var r,a,i;r="",p.supports&&(r+="@supports (".concat(p.supports,") {")),p.media&&(r+="@media ".concat(p.media," {")),(a=void 0!==p.layer)&&(r+="@layer".concat(p.layer.length>0?" ".concat(p.layer):""," {")),r+=p.css,a&&(r+="}"),p.media&&(r+="}"),p.supports&&(r+="}"),(i=p.sourceMap)&&"u">typeof btoa&&(r+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(i))))," */")),o.styleTagTransform(r,e,o.options)},remove:function(){var o;null===(o=e).parentNode||o.parentNode.removeChild(o)}}}},26(o){o.exports=function(o,e){if(e.styleSheet)e.styleSheet.cssText=o;else{for(;e.firstChild;)e.removeChild(e.firstChild);e.appendChild(document.createTextNode(o))}}},20(o,e,p){var r=p(21),a=p.n(r),i=p(22),t=p.n(i),n=p(23),l=p.n(n),m=p(24),g=p.n(m),d=p(25),s=p.n(d),c=p(26),u=p.n(c),f=p(27),x={};x.styleTagTransform=u(),x.setAttributes=g(),x.insert=l().bind(null,"head"),x.domAPI=t(),x.insertStyleElement=s(),a()(f.A,x),f.A&&f.A.locals&&f.A.locals;var b=p(30),h={};h.styleTagTransform=u(),h.setAttributes=g(),h.insert=l().bind(null,"head"),h.domAPI=t(),h.insertStyleElement=s(),a()(b.A,h),b.A&&b.A.locals&&b.A.locals;var v=p(31),w={};w.styleTagTransform=u(),w.setAttributes=g(),w.insert=l().bind(null,"head"),w.domAPI=t(),w.insertStyleElement=s(),a()(v.A,w),v.A&&v.A.locals&&v.A.locals}}]);