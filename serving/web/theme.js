// Dark or light: the system's setting until the button is used.

import { storage } from "./storage.js";

const THEME = "macaron-theme";

export function theme(button) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const local = storage("localStorage");
  const current = () => local.getItem(THEME) ?? (dark.matches ? "dark" : "light");
  const show = () => {
    document.documentElement.dataset.theme = current();
    button.setAttribute("aria-pressed", current() === "dark");
  };
  button.addEventListener("click", () => {
    local.setItem(THEME, current() === "dark" ? "light" : "dark");
    show();
  });
  dark.addEventListener("change", show);
  show();
}
