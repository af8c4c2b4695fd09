"""The style sheet, the glyphs and the small charts of the header. Colours are the theme's; widths follow the
cell, down to 300 px. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

POINTS = 120
"""How many readings are drawn; one a second makes two minutes."""
WIDE, HIGH = 190, 20

_CSS = """
.mgpu-wide,.mgpu-done,.mgpu-again{--mgpu-mine:var(--jp-brand-color1,#1976d2);--mgpu-bad:var(--jp-error-color1,#d32f2f);
--mgpu-text:var(--jp-ui-font-color1,rgba(0,0,0,.87));--mgpu-quiet:var(--jp-ui-font-color2,rgba(0,0,0,.6));
--mgpu-line:var(--jp-border-color2,#e0e0e0);--mgpu-mem:var(--jp-inverse-layout-color3,#616161);--mgpu-back:var(--jp-layout-color1,#fff);
font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:var(--jp-ui-font-size1,13px);color:var(--mgpu-text)}
.mgpu-wide{container-type:inline-size;margin:1px 0 4px}
.mgpu-head{border:1px solid var(--mgpu-line);border-left:3px solid var(--mgpu-mine);padding:7px 10px;background:var(--mgpu-back)}
.mgpu-waiting,.mgpu-starting{border-left:4px double var(--mgpu-mine)}
.mgpu-over{border-left-color:var(--mgpu-quiet)}.mgpu-over:has(.mgpu-g-failed){border-left-color:var(--mgpu-bad)}
.mgpu-row{display:flex;align-items:center;gap:10px;height:24px;white-space:nowrap}
.mgpu-second{margin-top:4px;gap:8px}
.mgpu-word{font-weight:600}.mgpu-wide b,.mgpu-done b{font-weight:600;color:var(--mgpu-text)}
.mgpu-name{overflow:hidden;text-overflow:ellipsis;flex:0 1 auto;min-width:3em}
.mgpu-id{font-family:var(--jp-code-font-family,monospace);font-size:12px;color:var(--mgpu-quiet)}
.mgpu-about{overflow:hidden;text-overflow:ellipsis;flex:1 1 0;min-width:0}
.mgpu-q{color:var(--mgpu-quiet)}.mgpu-strong{color:var(--mgpu-text)}
.mgpu-n{font-variant-numeric:tabular-nums}.mgpu-percent{min-width:5ch;text-align:right}.mgpu-memory{min-width:9ch}
.mgpu-line{margin-top:4px;line-height:18px;font-size:12px;overflow-wrap:anywhere}
.mgpu-room{flex:none;width:0}.mgpu-room-1{width:88px}.mgpu-room-2{width:184px}.mgpu-not-lab .mgpu-room{display:inline-block}
.mgpu-lab,.mgpu-jupyter{display:none!important}
body[data-mgpu-lab] .mgpu-lab,body[data-jp-theme-name] .mgpu-jupyter{display:inline-flex!important}
body[data-mgpu-lab] .mgpu-not-lab,body[data-mgpu-lab] .mgpu-widgets{display:none!important}
.mgpu-told{white-space:pre-wrap}
.mgpu-g{width:14px;height:14px;flex:none;fill:none;stroke:var(--mgpu-text);stroke-width:1.4}
.mgpu-g-running{fill:var(--mgpu-mine);stroke:none}.mgpu-g-starting,.mgpu-g-stopping{stroke:var(--mgpu-mine)}
.mgpu-g-failed,.mgpu-g-timeout{stroke:var(--mgpu-bad);stroke-width:1.8}
.mgpu-chart{flex:none;border-bottom:1px solid var(--mgpu-line)}.mgpu-chart-busy{width:190px}.mgpu-chart-memory{width:110px}
.mgpu-chart-busy path{fill:color-mix(in srgb,var(--mgpu-mine) 18%,transparent)}.mgpu-chart-busy polyline{stroke:var(--mgpu-mine)}
.mgpu-chart-memory path{fill:color-mix(in srgb,var(--mgpu-mem) 20%,transparent)}.mgpu-chart-memory polyline{stroke:var(--mgpu-mem)}
.mgpu-chart polyline{fill:none;stroke-width:1.3}
.mgpu-ranks{margin-left:auto;display:flex;gap:5px;align-items:center}
.mgpu-chip{border:1px solid var(--jp-border-color1,#bdbdbd);border-radius:2px;padding:0 5px;font-size:11px;line-height:15px}
.mgpu-ended{color:var(--mgpu-quiet);border-style:dotted}.mgpu-bad{border-color:var(--mgpu-bad)}
.mgpu-offer{margin:0 8px 0 4px;display:inline-block}.mgpu-wide code{font-size:11px;color:var(--mgpu-quiet)}
.mgpu-lines{margin-top:6px;padding:6px 8px;background:color-mix(in srgb,var(--mgpu-bad) 10%,var(--mgpu-back));overflow-x:auto;
font-family:var(--jp-code-font-family,monospace);font-size:12px;line-height:17px;white-space:pre}
.mgpu-lines i{display:inline-block;width:3ch;text-align:right;margin-right:10px;color:var(--mgpu-quiet);font-style:normal}
.mgpu-done{color:var(--mgpu-quiet);font-size:12px;line-height:20px;padding:2px 0}
.mgpu-done .mgpu-g{vertical-align:-2px;stroke:var(--mgpu-quiet)}.mgpu-done i{font-style:normal;margin:0 8px}
.mgpu-link{appearance:none;background:none;border:0;padding:0;font:inherit;color:var(--jp-content-link-color,#1976d2);cursor:pointer}
.mgpu-link:hover{text-decoration:underline}
.mgpu-wide summary{cursor:pointer}.mgpu-plain{background:var(--jp-layout-color2,#eee)}
.mgpu-small{display:none}
.mgpu-again{box-sizing:border-box;display:flex!important;flex-wrap:wrap;align-items:center;gap:4px 8px;margin:1px 0 4px!important;
padding:7px 10px;border:1px solid var(--mgpu-line);border-left:3px solid var(--jp-border-color1,#bdbdbd);background:var(--mgpu-back)}
.mgpu-again>.widget-html{flex:1 1 240px;margin:0;width:auto;min-width:0}.mgpu-again .widget-html-content{line-height:24px;overflow:hidden}
.mgpu-asks{display:flex;align-items:center;gap:10px;line-height:24px;font-size:var(--jp-ui-font-size1,13px);color:var(--mgpu-text)}
.mgpu-again .jupyter-button{width:auto;height:24px;line-height:22px;margin:0;padding:0 10px;border-radius:var(--jp-border-radius,2px);
font-size:var(--jp-ui-font-size1,13px);color:var(--mgpu-text);background:var(--mgpu-back);border:1px solid var(--jp-border-color1,#bdbdbd);
box-shadow:none}.mgpu-again .jupyter-button:hover{background:var(--jp-layout-color2,#eee)}
.mgpu-again .jupyter-button.mod-primary{color:#fff;background:var(--jp-accept-color-normal,#1976d2);border-color:transparent}
@container (max-width:620px){.mgpu-large,.mgpu-chart-memory,.mgpu-second .mgpu-ranks,.mgpu-running .mgpu-about,.mgpu-row .mgpu-id,
.mgpu-stopping .mgpu-about{display:none}.mgpu-small{display:inline}.mgpu-chart-busy{width:120px}.mgpu-memory{margin-left:auto}
.mgpu-memory b{font-weight:400}.mgpu-right{margin-left:auto}.mgpu-room-1{width:28px}.mgpu-room-2{width:56px}
.mgpu-waiting .mgpu-row,.mgpu-over .mgpu-row{flex-wrap:wrap;height:auto;min-height:24px}
.mgpu-waiting .mgpu-about,.mgpu-over .mgpu-about{flex:0 1 auto;white-space:normal}
.mgpu-waiting .mgpu-row .mgpu-room{display:none!important}
body[data-mgpu-lab] .mgpu-waiting .mgpu-row,.mgpu-waiting .mgpu-row:has(.mgpu-not-lab .mgpu-room){padding-right:60px}}
@container (max-width:420px){.mgpu-chart-busy{width:64px}}
.jp-RenderedHTMLCommon:has(>.mgpu-wide),.jp-RenderedHTMLCommon:has(>.mgpu-commands),.jp-RenderedHTMLCommon:has(>.mgpu-again){padding-right:0}
.jp-OutputArea-child:has(.mgpu-actions){height:0;overflow:visible;position:relative;z-index:3}
.jp-OutputArea-output:has(>.mgpu-actions){overflow:visible}
.mgpu-actions{height:0!important;overflow:visible!important;position:relative;z-index:2;justify-content:flex-end;width:100%!important;
container-type:inline-size;margin:0!important}
.mgpu-commands{display:flex!important}
.mgpu-act,.mgpu-actions .jupyter-button{box-sizing:border-box;align-items:center;justify-content:center;gap:6px;flex:none;height:24px;
line-height:22px;padding:0 10px;margin:0;font-family:inherit;font-size:var(--jp-ui-font-size1,13px);
color:var(--jp-ui-font-color1,#000);background:var(--jp-layout-color1,#fff);border:1px solid var(--jp-border-color1,#bdbdbd);
border-radius:var(--jp-border-radius,2px);box-shadow:none;cursor:pointer}
.mgpu-actions .mgpu-act,.mgpu-actions .jupyter-button{position:relative;top:9px;right:9px;margin:0 0 0 8px;width:88px}
.mgpu-act svg{width:13px;height:13px;flex:none;fill:none;stroke:currentColor;stroke-width:1.4}
.mgpu-act-cancel svg{stroke:var(--jp-error-color1,#d32f2f);stroke-width:1.8}
.mgpu-act:hover,.mgpu-actions .jupyter-button:hover{background:var(--jp-layout-color2,#eee)}
.mgpu-act:focus-visible,.mgpu-link:focus-visible,.mgpu-actions .jupyter-button:focus-visible,.mgpu-again .jupyter-button:focus-visible{
outline:2px solid var(--jp-focus-outline-color,#1976d2);outline-offset:2px}
.mgpu-actions .jupyter-button:disabled{opacity:.5}
.mgpu-actions .mgpu-cancel::before{content:"\\2715";color:var(--jp-error-color1,#d32f2f);margin-right:6px}
.mgpu-actions .mgpu-why::before{content:"?";font-weight:600;margin-right:6px}
@container (max-width:620px){.mgpu-actions .mgpu-act,.mgpu-actions .jupyter-button{width:28px;margin:0;font-size:0;padding:0;
border-color:transparent}.mgpu-actions .mgpu-act span{display:none}.mgpu-actions .mgpu-cancel::before,.mgpu-actions .mgpu-why::before{
font-size:13px;margin:0}}
@media (forced-colors:active){.mgpu-g,.mgpu-chart polyline{stroke:CanvasText}.mgpu-g-running{fill:Highlight}}
"""
STYLE = f"<style>{_CSS.replace(chr(10), '')}</style>"

_SHAPES = {
    "queued": '<circle cx="7" cy="7" r="5.6"/><path d="M7 3.6V7l2.3 1.4"/>',
    "held": '<path d="M4.5 3v8M9.5 3v8" stroke-width="2"/>',
    "starting": '<circle cx="7" cy="7" r="5.6" stroke-dasharray="2.4 1.6"/><path d="M5.6 4.6v4.8L9.6 7z"/>',
    "running": '<path d="M3 1.6v10.8L12.4 7z"/>',
    "stopping": '<path d="M3.6 2.6v8.8L11.4 7z"/>',
    "completed": '<path d="M2.4 7.4l3 3 6.2-7"/>',
    "failed": '<path d="M2.8 2.8l8.4 8.4M11.2 2.8l-8.4 8.4"/>',
    "timeout": '<path d="M3.5 1.8h7M3.5 12.2h7M4.4 2c0 3 2.6 3.6 2.6 5s-2.6 2-2.6 5M9.6 2c0 3-2.6 3.6-2.6 5s2.6 2 2.6 5"/>',
    "cancelled": '<circle cx="7" cy="7" r="5.4"/><path d="M3.4 3.4l7.2 7.2"/>',
}
GLYPHS = {
    name: f'<svg class="mgpu-g mgpu-g-{name}" viewBox="0 0 14 14" aria-hidden="true">{shape}</svg>'
    for name, shape in _SHAPES.items()
}


def chart(values: Sequence[float | None], most: float, kind: str, label: str) -> str:
    """Return readings as a line over a pale area; the newest is at the right, and it moves one step at a
    time.
    """
    points = []
    last = values[-POINTS:]
    for place, value in enumerate(last, start=POINTS - len(last) + 1):
        if value is not None and most > 0:
            share = min(max(value / most, 0.0), 1.0)
            points.append(f"{place * WIDE / POINTS:.1f},{HIGH - 1 - share * (HIGH - 2):.1f}")
    drawn = ""
    if len(points) > 1:
        first, end = points[0].partition(",")[0], points[-1].partition(",")[0]
        drawn = f'<path d="M{first},{HIGH}L{" ".join(points)} {end},{HIGH}Z"/><polyline points="{" ".join(points)}"/>'
    return (
        f'<svg class="mgpu-chart mgpu-chart-{kind}" height="{HIGH}" viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}">{drawn}</svg>'
    )
