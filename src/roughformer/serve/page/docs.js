// The operations of the API, from /openapi.json.
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
