// Light or dark: as the system says, until one chooses; the choice is kept in this browser.

const KEY = "stillmotion-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

export function toggle() {
  const now = document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem(KEY, next);
  dispatchEvent(new Event("themechange"));
}

export function start() {
  const kept = localStorage.getItem(KEY);
  if (kept) document.documentElement.dataset.theme = kept;
  document.getElementById("theme").addEventListener("click", toggle);
  dark.addEventListener("change", () => dispatchEvent(new Event("themechange")));
}
