"""Texts that a page may take for markup, script, style or an address, or that hide what they say."""

from __future__ import annotations

# Each sets a mark if it runs as a script anywhere.
RUN = "window.__ran=1"
CORPUS = [
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f'"><img src=x onerror="{RUN}">',
    f"'><svg/onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'>",
    f"javascript:{RUN}",
    f"<a href='javascript:{RUN}'>x</a>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={RUN}>",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    f"<template><script>{RUN}</script></template></template><img src=x onerror={RUN}>",
    f"</textarea><img src=x onerror={RUN}>",
    f"</title><script>{RUN}</script>",
    f"</template><img src=x onerror={RUN}>",
    f"<body onload={RUN}>",
    f"<details open ontoggle={RUN}>",
    f"<input autofocus onfocus={RUN}>",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    f"${{{RUN}}}",
    f"{{% set x = 1 %}}{{{{ 7*7 }}}}<img src=x onerror={RUN}>",
    "<style>*{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<base href='http://127.0.0.1:9/'>",
    "<form action='http://127.0.0.1:9/'><input name=csrf>",
    "]]><!--",
    "--><x>",
    "\u202egnp.exe\u202c",
    "\x1b]0;title\x07\x1b[2J",
    "zero\u200bwidth\ufeff",
    "a\u2028b\u2029c",
    "data: x\n\nevent: call\ndata: {}\n\n",
    "\x00nul",
    "&lt;b&gt;&#x3c;script&#x3e;",
    "\U000e0041\U000e0042",
]
