"""The style of the panel: one style sheet made of JupyterLab's own variables, and the patterns that tiles
share. Text only.

Colours come from `--jp-*`, so that light, dark and high contrast follow the theme; the values after the comma
are for front ends without such variables. A state is shown by its pattern first and by colour second.
"""

from __future__ import annotations

from mgpu_jupyter.notebook.panel import rows

PATTERNS = """
<svg width="0" height="0" style="position:absolute" aria-hidden="true" focusable="false"><defs>
<pattern id="mgpu-thin" width="3" height="3" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect class="mgpu-pt" width="1" height="3"/></pattern>
<pattern id="mgpu-stripes" width="3" height="3" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect class="mgpu-ps" width="3" height="3"/><rect class="mgpu-pl" width="1" height="3"/></pattern>
<pattern id="mgpu-dots" width="4" height="4" patternUnits="userSpaceOnUse">
<circle class="mgpu-po" cx="2" cy="2" r="1"/></pattern>
<pattern id="mgpu-holes" width="4" height="4" patternUnits="userSpaceOnUse">
<rect class="mgpu-po" width="4" height="4"/><circle class="mgpu-ph" cx="2" cy="2" r="1"/></pattern>
</defs></svg>
"""

VARIABLES = """
.mgpu-panel{--mgpu-mine:var(--jp-brand-color1,#1976d2);--mgpu-bg:var(--jp-layout-color1,#fff);
--mgpu-mine-pale:color-mix(in srgb,var(--mgpu-mine) 18%,var(--mgpu-bg));--mgpu-others:var(--jp-layout-color4,#757575);
--mgpu-outside:var(--jp-warn-color0,#e65100);--mgpu-bad:var(--jp-error-color1,#d32f2f);--mgpu-free:#8a8a8a;
--mgpu-closed:var(--jp-border-color1,#bdbdbd);--mgpu-mem:var(--jp-inverse-layout-color3,#616161);
--mgpu-track:var(--jp-layout-color2,#e2e2e2);--mgpu-text:var(--jp-ui-font-color1,#212121);--mgpu-quiet:var(--jp-ui-font-color2,#616161);
--mgpu-line:var(--jp-border-color2,#e0e0e0);--mgpu-edge:var(--jp-border-color1,#bdbdbd);
--mgpu-chosen:var(--jp-notebook-multiselected-color,#e3f2fd);--mgpu-focus:var(--jp-focus-outline-color,#1976d2)}
body[data-jp-theme-light="false"] .mgpu-panel{--mgpu-others:#9a9a9a;--mgpu-track:#424242;--mgpu-closed:#555;
--mgpu-mine-pale:color-mix(in srgb,var(--mgpu-mine) 24%,var(--mgpu-bg));
--mgpu-chosen:color-mix(in srgb,var(--mgpu-mine) 24%,var(--mgpu-bg))}
body[data-jp-theme-name*="High Contrast"] .mgpu-panel{--mgpu-free:#fff;--mgpu-others:#e0e0e0;--mgpu-closed:#bdbdbd;--mgpu-mem:#fff;
--mgpu-track:#333;--mgpu-quiet:var(--mgpu-text)}
"""

BASE = """
.mgpu-panel{color:var(--mgpu-text);font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:var(--jp-ui-font-size1,13px);
line-height:1.4;max-width:980px;width:100%;container-type:inline-size}
.mgpu-panel .widget-html,.mgpu-panel .widget-html-content,.mgpu-panel .jupyter-widgets{margin:0;font-size:inherit}
.mgpu-panel .widget-html-content{line-height:1.4;width:100%;min-width:0;overflow-wrap:anywhere;align-self:stretch}
.mgpu-panel .widget-html{height:auto;min-width:0;color:inherit}
.mgpu-panel .quiet,.mgpu-panel .why,.mgpu-panel .head{color:var(--mgpu-quiet)}
.mgpu-panel .n{font-variant-numeric:tabular-nums}
.mgpu-panel .right{text-align:right}
.mgpu-panel code,.mgpu-panel .mono{font-family:var(--jp-code-font-family,monospace);font-size:12px}
.mgpu-panel .big{font-size:18px;font-weight:400}.mgpu-panel .big b{font-weight:600}
.mgpu-panel button:focus-visible,.mgpu-panel input:focus-visible,.mgpu-panel label:focus-within{outline:2px solid var(--mgpu-focus);
outline-offset:-2px}
.mgpu-panel .mgpu-note{padding:6px 10px;border:1px solid var(--mgpu-edge);margin:0 0 8px}
.mgpu-panel .mgpu-hide{display:none}
.mgpu-panel .mgpu-glyph{fill:none;stroke:var(--mgpu-quiet);stroke-width:1.5;vertical-align:-2px}
.mgpu-panel .mgpu-glyph .f{fill:var(--mgpu-quiet)}
.mgpu-panel .mgpu-glyph.mine{stroke:var(--mgpu-mine)}.mgpu-panel .mgpu-glyph.mine .f{fill:var(--mgpu-mine)}
.mgpu-panel .mgpu-glyph.bad{stroke:var(--mgpu-bad)}.mgpu-panel .mgpu-glyph.warn{stroke:var(--mgpu-outside)}
.mgpu-panel .mgpu-top{align-items:center;gap:8px;margin-bottom:4px;overflow:visible}
.mgpu-panel .widget-button{height:24px;line-height:22px;padding:0 8px;border:1px solid var(--mgpu-edge);background:var(--mgpu-bg);
color:var(--mgpu-text);box-shadow:none;width:auto;font-size:inherit}
.mgpu-panel .widget-button.mod-primary{background:var(--jp-accept-color-normal,#1976d2);border-color:transparent;color:#fff}
.mgpu-panel .widget-button:disabled{opacity:.45}
.mgpu-panel .mgpu-link .widget-button,.mgpu-panel .widget-button.mgpu-link{border:0;background:none;padding:0 4px;
color:var(--jp-content-link-color,#1976d2)}
.mgpu-panel .widget-toggle-buttons .widget-toggle-button{height:24px;line-height:22px;width:auto;padding:0 8px;margin:0;
border:1px solid var(--mgpu-edge);background:var(--mgpu-bg);color:var(--mgpu-text);box-shadow:none;font-size:inherit}
.mgpu-panel .widget-toggle-buttons .widget-toggle-button.mod-active{background:var(--mgpu-track);font-weight:600;
border-bottom:2px solid var(--mgpu-mine);line-height:20px}
.mgpu-panel .mgpu-chips .widget-toggle-button{border-radius:12px;margin-right:6px}
.mgpu-panel .mgpu-chips .widget-toggle-button.mod-active{background:var(--mgpu-bg);border:2px solid var(--mgpu-mine);line-height:20px}
.mgpu-panel .widget-label{color:inherit;font-size:inherit}
.mgpu-panel .widget-text input,.mgpu-panel .widget-dropdown select{height:26px;font-size:inherit}
"""

TILES = """
.mgpu-pt{fill:var(--mgpu-others);opacity:.42}.mgpu-ps{fill:var(--mgpu-others)}.mgpu-pl{fill:var(--mgpu-bg);opacity:.6}
.mgpu-po{fill:var(--mgpu-outside)}.mgpu-ph{fill:var(--mgpu-bg)}
.mgpu-wall{display:block;forced-color-adjust:none;overflow:visible}
.mgpu-t .b{fill:var(--mgpu-bg);stroke:var(--mgpu-free);stroke-width:1}
.mgpu-t .s{fill:var(--mgpu-track)}.mgpu-t .u{fill:var(--mgpu-mem)}
.mgpu-t .k{fill:none;stroke-width:1.8}
.mgpu-t.mine .b{fill:var(--mgpu-mine-pale);stroke:var(--mgpu-mine)}.mgpu-t.mine .l{fill:var(--mgpu-mine)}
.mgpu-t.others .b{fill:url(#mgpu-thin);stroke:var(--mgpu-others)}.mgpu-t.others .l{fill:url(#mgpu-stripes)}
.mgpu-t.outside .b{fill:url(#mgpu-dots);stroke:var(--mgpu-outside)}.mgpu-t.outside .l{fill:url(#mgpu-holes)}
.mgpu-t.unhealthy .b{fill:color-mix(in srgb,var(--mgpu-bad) 12%,var(--mgpu-bg));stroke:var(--mgpu-bad)}
.mgpu-t.unhealthy .k{stroke:var(--mgpu-bad)}
.mgpu-t.closed .b{stroke:var(--mgpu-closed)}.mgpu-t.closed .k{stroke:var(--mgpu-quiet);stroke-width:1.2}
.mgpu-t.sim .b{stroke-dasharray:2.5 2}
.mgpu-t.pick .b{fill:var(--mgpu-mine-pale);stroke:var(--mgpu-mine);stroke-width:2;stroke-dasharray:none}
.mgpu-t.pick .k{stroke:var(--mgpu-mine)}
.mgpu-plot{display:block}.mgpu-plot .z{stroke:var(--mgpu-line);fill:none}
.mgpu-plot .n{fill:none;stroke-width:1.2;vector-effect:non-scaling-stroke}
.mgpu-plot.mine .n{stroke:var(--mgpu-mine)}.mgpu-plot.mine .a{fill:var(--mgpu-mine-pale)}
.mgpu-plot.others .n{stroke:var(--mgpu-mem)}.mgpu-plot.others .a{fill:var(--mgpu-track)}
.mgpu-stale .mgpu-wall,.mgpu-stale .mgpu-plot{opacity:.5;filter:saturate(.3)}
@media (prefers-reduced-motion:no-preference){.mgpu-t .l{transition:y .2s,height .2s}}
@media (forced-colors:active){.mgpu-panel{--mgpu-mine:Highlight;--mgpu-others:CanvasText;--mgpu-free:CanvasText;--mgpu-mem:CanvasText;
--mgpu-bg:Canvas}}
"""

QUEUE = """
.mgpu-panel .mgpu-cells{display:grid;grid-template-columns:WIDE_CELLS;
column-gap:8px;align-items:center;height:26px;white-space:nowrap}
.mgpu-panel .mgpu-cells>span{overflow:hidden;text-overflow:ellipsis}
.mgpu-panel .mgpu-cells.me .name{font-weight:600}
.mgpu-panel .mgpu-row{border-bottom:1px solid var(--mgpu-line);align-items:center;overflow:hidden;min-height:27px}
.mgpu-panel .mgpu-row:has(.chosen){background:var(--mgpu-chosen)}.mgpu-panel .chosen .why{color:var(--mgpu-text)}
.mgpu-panel .mgpu-row .widget-html{flex:1 1 auto}
.mgpu-panel .mgpu-headrow{border-bottom:1px solid var(--mgpu-edge);padding-right:72px;box-sizing:border-box}
.mgpu-panel .mgpu-rows{overflow:visible}
.mgpu-panel .mgpu-row:focus-visible{outline:2px solid var(--mgpu-focus);outline-offset:-2px}
.mgpu-panel .mgpu-row.mgpu-dragged{opacity:.5}.mgpu-panel .mgpu-row.mgpu-dropbefore{box-shadow:inset 0 2px var(--mgpu-mine)}
.mgpu-panel .mgpu-row.mgpu-dropafter{box-shadow:inset 0 -2px var(--mgpu-mine)}
.mgpu-panel .mgpu-orders,.mgpu-panel .mgpu-bykeys,body[data-mgpu-panel] .mgpu-panel .mgpu-bybuttons{display:none}
body[data-mgpu-panel] .mgpu-panel .mgpu-bykeys{display:inline}body[data-mgpu-panel] .mgpu-panel [data-moves]{cursor:grab}
.mgpu-panel kbd{border:1px solid var(--mgpu-edge);border-radius:2px;padding:0 4px;font-family:var(--jp-code-font-family,monospace);
font-size:12px;background:none;color:inherit;box-shadow:none}
.mgpu-panel .mgpu-row .widget-button{flex:0 0 24px;width:24px;min-width:24px;height:24px;padding:0;border:0;background:none;
color:var(--mgpu-text);font-size:0;margin:0}
.mgpu-panel .mgpu-row .widget-button:hover{background:var(--mgpu-track)}
.mgpu-panel .mgpu-row .widget-button:disabled{visibility:hidden}
.mgpu-panel .mgpu-row .widget-button::before{font-size:14px;line-height:24px;font-family:system-ui,sans-serif}
.mgpu-panel .mgpu-why::before{content:"?"}.mgpu-panel .mgpu-hold::before{content:"\\2016"}.mgpu-panel .mgpu-free::before{content:"\\25B7"}
.mgpu-panel .mgpu-end::before{content:"\\2715"}
.mgpu-panel .mgpu-offered{border:1px solid var(--mgpu-line);padding:8px 10px;margin:4px 0;align-items:center;max-width:520px;
overflow:hidden}
.mgpu-panel .mgpu-offered .widget-html{flex:1 1 auto}.mgpu-panel .mgpu-offered .widget-button{flex:0 0 auto;height:28px}
.mgpu-panel .now{color:var(--jp-content-link-color,#1976d2)}
.mgpu-panel .mgpu-first{background:var(--jp-accept-color-normal,#1976d2)!important;border-color:transparent!important;color:#fff!important}
.mgpu-panel .mgpu-card{border:1px solid var(--mgpu-line);padding:10px 12px;margin-top:8px}
.mgpu-panel .mgpu-card h4{margin:8px 0 2px;font-size:inherit;font-weight:600}
.mgpu-panel .mgpu-card p{margin:2px 0}
.mgpu-panel table.mgpu-table{border-collapse:collapse;width:100%;margin:0;font-size:inherit;table-layout:auto}
.mgpu-panel table.mgpu-table th{font-weight:400;color:var(--mgpu-quiet);text-align:left;padding:2px 8px 4px 0;
border-bottom:1px solid var(--mgpu-edge);background:none}
.mgpu-panel table.mgpu-table td{padding:3px 8px 2px 0;border-bottom:1px solid var(--mgpu-line);text-align:left;vertical-align:middle;
background:none;white-space:nowrap}
.mgpu-panel table.mgpu-table .right{text-align:right}.mgpu-panel table.mgpu-table tr{background:none}
"""

OTHERS = """
.mgpu-panel .mgpu-split{gap:16px;align-items:flex-start;overflow:visible}
.mgpu-panel .mgpu-list{position:relative;max-height:300px;overflow:hidden auto;flex:0 0 auto;width:250px}
.mgpu-panel .mgpu-detail{flex:1 1 380px;min-width:0;overflow:hidden auto}
.mgpu-panel .mgpu-left{flex:0 0 250px;overflow:visible}
.mgpu-panel .mgpu-list .mgpu-names{position:relative;z-index:1;width:100%;margin:0}
.mgpu-panel .mgpu-list .widget-radio{width:100%;height:auto}
.mgpu-panel .mgpu-list .widget-radio-box{width:100%;margin:0!important;display:block}
.mgpu-panel .mgpu-list .widget-radio-box label{display:block;height:26px;line-height:26px;margin:0;padding:0 140px 0 8px;cursor:pointer;
overflow:hidden;text-overflow:ellipsis;white-space:nowrap;position:relative}
.mgpu-panel .mgpu-list .widget-radio-box input{position:absolute;opacity:0;width:100%;height:100%;left:0;top:0;margin:0;cursor:pointer}
.mgpu-panel .mgpu-list label:has(input:checked){background:var(--mgpu-chosen);font-weight:600}
.mgpu-panel .mgpu-list .mgpu-walls{position:absolute;right:6px;top:0;z-index:2;pointer-events:none;width:128px;overflow:visible}
.mgpu-panel .mgpu-wr{height:26px;padding-top:4px;box-sizing:border-box}
.mgpu-panel .mgpu-ends{display:flex;justify-content:space-between;padding:0 6px 2px 8px}
.mgpu-panel .mgpu-lines2 .widget-radio-box label{height:46px}.mgpu-panel .mgpu-lines3 .widget-radio-box label{height:66px}
.mgpu-panel .mgpu-lines4 .widget-radio-box label{height:86px}
.mgpu-panel .mgpu-legend{display:flex;flex-flow:row wrap;gap:2px 6px;margin-top:8px;max-width:250px;overflow:visible}
.mgpu-panel .mgpu-legend .widget-checkbox,.mgpu-panel .mgpu-legend .widget-html{width:auto;height:24px;flex:0 0 auto}
.mgpu-panel .mgpu-legend label,.mgpu-panel .mgpu-issim{display:inline-flex;align-items:center;gap:6px;height:24px;padding:0 4px;
line-height:22px;box-sizing:border-box;border:1px solid transparent;border-radius:2px;cursor:pointer;position:relative;margin:0}
.mgpu-panel .mgpu-issim{cursor:default}
.mgpu-panel .mgpu-legend label:has(input:checked){border-color:var(--mgpu-mine);font-weight:600}
.mgpu-panel .mgpu-legend label:hover{background:var(--mgpu-track)}
.mgpu-panel .mgpu-legend input{position:absolute;opacity:0;width:100%;height:100%;left:0;top:0;margin:0;cursor:pointer}
.mgpu-panel .mgpu-legend label::before,.mgpu-panel .mgpu-issim::before{content:"";width:12px;height:14px;flex:0 0 auto;border-radius:1.5px;
border:1px solid var(--mgpu-free);background:var(--mgpu-bg)}
.mgpu-panel .mgpu-issim::before{border-style:dashed}
.mgpu-panel .mgpu-is-mine label::before{border-color:var(--mgpu-mine);
background:linear-gradient(to top,var(--mgpu-mine) 60%,var(--mgpu-mine-pale) 60%)}
.mgpu-panel .mgpu-is-others label::before{border-color:var(--mgpu-others);
background:repeating-linear-gradient(135deg,var(--mgpu-others) 0 2px,var(--mgpu-bg) 2px 3px)}
.mgpu-panel .mgpu-is-outside label::before{border-color:var(--mgpu-outside);
background:radial-gradient(circle at 2px 2px,var(--mgpu-outside) 1.2px,transparent 1.3px) 0 0/4px 4px}
.mgpu-panel .mgpu-is-unhealthy label::before{border-color:var(--mgpu-bad);color:var(--mgpu-bad);content:"\\2715";font-size:10px;
line-height:14px;text-align:center}
.mgpu-panel .mgpu-is-closed label::before{border-color:var(--mgpu-closed);content:"\\2013";color:var(--mgpu-quiet);font-size:10px;
line-height:13px;text-align:center}
.mgpu-panel .mgpu-only .mgpu-t{opacity:.15}.mgpu-panel .mgpu-only tr[data-state]{opacity:.35}
.mgpu-panel .mgpu-only-free :is(.mgpu-t.free,tr[data-state=free]),.mgpu-panel .mgpu-only-mine :is(.mgpu-t.mine,tr[data-state=mine]),
.mgpu-panel .mgpu-only-others :is(.mgpu-t.others,tr[data-state=others]),
.mgpu-panel .mgpu-only-outside :is(.mgpu-t.outside,tr[data-state=outside]),
.mgpu-panel .mgpu-only-unhealthy :is(.mgpu-t.unhealthy,tr[data-state=unhealthy]),
.mgpu-panel .mgpu-only-closed :is(.mgpu-t.closed,tr[data-state=closed]){opacity:1}
.mgpu-panel .mgpu-form{flex:0 1 330px;overflow:visible}
.mgpu-panel .mgpu-form :is(.widget-text,.widget-textarea,.widget-dropdown,.widget-hbox){margin-bottom:6px}
.mgpu-panel .mgpu-form .widget-hbox,.mgpu-panel .mgpu-offer{align-items:center}
.mgpu-panel .mgpu-form p,.mgpu-panel .mgpu-answer p{margin:2px 0 6px}
.mgpu-panel .mgpu-form .widget-label{width:92px;text-align:left;flex:0 0 auto}
.mgpu-panel .mgpu-form .mgpu-unit{width:auto;margin:0 6px;align-self:center}
.mgpu-panel .mgpu-label{display:block;width:100px;line-height:28px}
.mgpu-panel .mgpu-form .widget-textarea textarea{font-family:var(--jp-code-font-family,monospace);font-size:12px}
.mgpu-panel .mgpu-more{width:auto;height:24px;line-height:24px;border:0;background:none;color:var(--mgpu-text);padding:0;box-shadow:none;
margin-bottom:6px;font-size:inherit;align-self:flex-start;text-align:left}
.mgpu-panel .mgpu-more::before{content:"\\25B8";display:inline-block;width:16px;text-align:left}
.mgpu-panel .mgpu-more.mod-active{background:none;box-shadow:none;color:var(--mgpu-text)}
.mgpu-panel .mgpu-more.mod-active::before{content:"\\25BE"}
.mgpu-panel .mgpu-more::after{content:"placement, environment, variables, retries, dependencies, array";color:var(--mgpu-quiet);
padding-left:8px;font-size:12px}
.mgpu-panel .mgpu-offer .widget-button{flex:0 0 auto;min-width:40px}.mgpu-panel .mgpu-offer .widget-html{flex:0 1 auto}
.mgpu-panel .mgpu-answer{flex:1 1 320px;min-width:260px;overflow:visible}
.mgpu-panel .mgpu-pickrow{position:relative;height:26px;overflow:visible}
.mgpu-panel .mgpu-pickrow .mgpu-tilebuttons{position:absolute;left:96px;top:1px;overflow:visible}
.mgpu-panel .mgpu-tilebuttons .widget-button{width:16px;min-width:16px;height:24px;padding:0;margin:0;border:0;background:transparent;
font-size:0;color:transparent}
.mgpu-panel .mgpu-tilebuttons .widget-button:disabled{opacity:0;pointer-events:none}
.mgpu-panel .mgpu-pick{display:grid;grid-template-columns:96px 1fr;height:24px;align-items:center}
.mgpu-panel .mgpu-pick>span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.mgpu-panel .mgpu-old{opacity:.55}
.mgpu-panel .mgpu-line{background:var(--jp-cell-editor-background,#f5f5f5);border:1px solid var(--mgpu-line);padding:6px 10px;
white-space:pre-wrap;margin-top:8px;font-family:var(--jp-code-font-family,monospace);font-size:12px}
.mgpu-panel .mgpu-line{user-select:all}
.mgpu-panel .mgpu-write{display:none}body[data-jp-theme-name] .mgpu-panel .mgpu-write{display:inline-block}
body[data-jp-theme-name] .mgpu-panel .mgpu-copy{display:none}
.mgpu-panel .mgpu-line b{color:var(--jp-mirror-editor-meta-color,#aa22ff);font-weight:400}
.mgpu-panel .mgpu-way{display:flex;gap:2px;margin:8px 0 4px;font-size:12px;position:relative;overflow:hidden}
.mgpu-panel .mgpu-way div{min-width:max-content}.mgpu-panel .mgpu-way span{padding-right:12px}
.mgpu-panel .mgpu-way .end{position:absolute;right:0;bottom:0;padding:0 0 0 8px;background:var(--mgpu-bg)}
.mgpu-panel .mgpu-way i{display:block;height:12px;border:1px solid var(--mgpu-others);box-sizing:border-box;margin-bottom:2px}
.mgpu-panel .mgpu-way .st{background:repeating-linear-gradient(135deg,var(--mgpu-others) 0 1px,transparent 1px 4px)}
.mgpu-panel .mgpu-way .ru{background:var(--mgpu-others)}
.mgpu-panel .mgpu-way .live{background:var(--mgpu-mine);border-color:var(--mgpu-mine)}
.mgpu-panel .mgpu-way .le{border-style:dashed}.mgpu-panel .mgpu-gp .top{font-weight:600}
.mgpu-panel .mgpu-log{border:1px solid var(--mgpu-line);flex:1 1 360px;min-width:260px;overflow:visible;padding:4px 8px}
.mgpu-panel .mgpu-lines{max-height:240px;overflow:auto;font-family:var(--jp-code-font-family,monospace);font-size:12px;line-height:18px;
display:flex;flex-direction:column-reverse}
.mgpu-panel .mgpu-lines table{border-collapse:collapse;width:100%;margin:0}
.mgpu-panel .mgpu-lines td{padding:0 8px;white-space:pre-wrap;text-align:left;border:0;vertical-align:top;background:none;font-size:12px}
.mgpu-panel .mgpu-lines tr{background:none!important}
.mgpu-panel .mgpu-lines td:first-child{white-space:nowrap;min-width:28px;
color:var(--mgpu-quiet);text-align:right;border-right:2px solid var(--mgpu-line);width:1%}
.mgpu-panel .mgpu-rail{flex:0 1 260px;min-width:200px;overflow:visible}
.mgpu-panel .mgpu-gp{display:grid;grid-template-columns:minmax(60px,1fr) 104px 48px;gap:8px;align-items:center;margin-top:4px}
.mgpu-panel .mgpu-beat{display:none}
.mgpu-panel .mgpu-split{flex-flow:row wrap}
"""

NARROW = """
@container (max-width:560px){
.mgpu-panel .mgpu-cells{grid-template-columns:NARROW_CELLS;height:44px;row-gap:0;align-content:center}
.mgpu-panel .mgpu-cells.head{height:26px}.mgpu-panel .mgpu-cells .wide,.mgpu-panel .mgpu-cells.head .why{display:none}
.mgpu-panel .mgpu-cells .why{grid-column:3/-1;grid-row:2}
.mgpu-panel .mgpu-answer,.mgpu-panel .mgpu-log,.mgpu-panel .mgpu-rail,.mgpu-panel .mgpu-detail{flex-basis:100%;min-width:0}
.mgpu-panel .mgpu-detail{overflow-x:auto}.mgpu-panel .mgpu-table .mgpu-plot{width:64px}
.mgpu-panel .mgpu-left,.mgpu-panel .mgpu-form{flex-basis:100%}.mgpu-panel .mgpu-list{width:100%}
.mgpu-panel .mgpu-legend{max-width:none}.mgpu-panel .mgpu-more::after{display:none}
.mgpu-panel .mgpu-top{flex-wrap:wrap}}
"""


def style() -> str:
    """Return the style sheet and the patterns, once for each panel."""
    wide, narrow = QUEUE.replace("WIDE_CELLS", rows.WIDE), NARROW.replace("NARROW_CELLS", rows.NARROW)
    return f"<style>{VARIABLES}{BASE}{TILES}{wide}{OTHERS}{narrow}</style>{PATTERNS}"
