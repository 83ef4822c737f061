// Light, dark, or as the system has it. Not a module: it runs before the first paint.
"use strict";

(() => {
  const KEY = "roughformer-theme";
  const SIGNS = { auto: "◐", light: "☀", dark: "☾" };
  const NEXT = { auto: "light", light: "dark", dark: "auto" };
  const system = matchMedia("(prefers-color-scheme: dark)");
  let choice = "auto";
  try {
    choice = localStorage.getItem(KEY) || "auto";
  } catch {
    // Storage may be forbidden: then the choice lasts as long as the page.
  }
  if (!(choice in SIGNS)) choice = "auto";

  const apply = () => {
    const dark = choice === "dark" || (choice === "auto" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    const button = document.getElementById("theme");
    if (button) {
      button.replaceChildren(`${SIGNS[choice]} `);
      const word = document.createElement("span");
      word.textContent = choice;
      button.append(word);
      const said = choice === "auto" ? "as the system" : choice;
      button.setAttribute("aria-label", `Colours: ${said}. Change to ${NEXT[choice]}`);
    }
    dispatchEvent(new Event("themechange"));
  };

  apply();
  system.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      choice = NEXT[choice];
      try {
        localStorage.setItem(KEY, choice);
      } catch {
        // As above.
      }
      apply();
    });
  });
})();
