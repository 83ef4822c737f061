// What is chosen, in the address of the page: a bookmark or a reload brings it back.

const byId = (id) => document.getElementById(id);

/** Sets the controls to what the address says; what it does not say, or says wrongly, stays. */
export function readPlace() {
  const told = new URLSearchParams(location.hash.slice(1));
  const source = [...byId("source").options].find((option) => option.value === told.get("source"));
  if (source && !source.disabled) byId("source").value = source.value;
  if (told.has("stream")) byId("stream-id").value = told.get("stream");
  const speed = document.querySelector(
    `input[name=speed][value="${CSS.escape(told.get("speed") ?? "")}"]`,
  );
  if (speed) speed.checked = true;
  if (/^\d+$/.test(told.get("dropped") ?? "")) byId("dropped").value = told.get("dropped");
}

/** Puts the controls into the address, without a step in the history. */
export function writePlace() {
  const place = new URLSearchParams({ source: byId("source").value });
  const add = (name, value, usual) => {
    if (value !== usual) place.set(name, value);
  };
  add("stream", byId("watch").hidden ? "" : byId("stream-id").value, "");
  add("speed", document.querySelector("input[name=speed]:checked").value, "1");
  add("dropped", byId("dropped").value, "0");
  history.replaceState(null, "", `#${place}`);
}
