// Dark or light: the system's setting until the button is used.

const THEME = "macaron-theme";

export function theme(button) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const current = () => localStorage.getItem(THEME) ?? (dark.matches ? "dark" : "light");
  const show = () => {
    document.documentElement.dataset.theme = current();
    button.setAttribute("aria-pressed", current() === "dark");
  };
  button.addEventListener("click", () => {
    localStorage.setItem(THEME, current() === "dark" ? "light" : "dark");
    show();
  });
  dark.addEventListener("change", show);
  show();
}
