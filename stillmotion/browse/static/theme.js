// Light or dark theme: as the system prefers, until the user chooses; the choice is stored in this browser.

const KEY = "stillmotion-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

export function toggle() {
  const current = document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const next = current === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem(KEY, next);
  dispatchEvent(new Event("themechange"));
}

export function start() {
  const stored = localStorage.getItem(KEY);
  if (stored) document.documentElement.dataset.theme = stored;
  document.getElementById("theme").addEventListener("click", toggle);
  dark.addEventListener("change", () => dispatchEvent(new Event("themechange")));
}
