"""``/docs``: the operations, from /openapi.json, on a page that asks no other host for anything."""

import hashlib
from base64 import b64encode

__all__ = ["DOCS_PAGE", "DOCS_POLICY"]

_SCRIPT = """
const list = document.getElementById("operations");
const add = (parent, tag, text, name) => {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  if (name) node.className = name;
  parent.append(node);
  return node;
};
fetch("openapi.json").then((answer) => answer.json()).then((api) => {
  document.title = api.info.title;
  document.getElementById("title").textContent = `${api.info.title} ${api.info.version}`;
  document.getElementById("about").textContent = api.info.description || "";
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, about] of Object.entries(methods)) {
      const item = add(list, "details");
      const head = add(item, "summary");
      add(head, "code", method.toUpperCase(), "method");
      add(head, "code", path);
      add(head, "span", about.description || about.summary || "", "says");
      const content = about.requestBody ? about.requestBody.content : {};
      for (const [kind, body] of Object.entries(content)) {
        add(item, "p", `Body: ${kind}`);
        if (body.example) add(item, "pre", JSON.stringify(body.example, null, 2));
      }
      for (const [code, what] of Object.entries(about.responses || {})) {
        add(item, "p", `${code}: ${what.description}`);
      }
    }
  }
}).catch((error) => { list.textContent = String(error); });
"""
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
details { border: 1px solid #8884; border-radius: 6px; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
.says { margin-left: 1rem; opacity: .75; }
pre { overflow-x: auto; background: #8882; padding: .6rem; border-radius: 6px; }
"""
DOCS_PAGE = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>API</title><style>{_STYLE}</style></head>
<body><h1 id="title">API</h1><p id="about"></p><div id="operations"></div>
<script>{_SCRIPT}</script></body></html>
"""


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# The page's own script and style, by their hashes, and nothing else.
DOCS_POLICY = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
