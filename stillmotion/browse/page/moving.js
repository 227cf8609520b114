// Whether pictures move: as the system says, until one chooses. A picture that is paused moves under the pointer.

const wish = matchMedia("(prefers-reduced-motion: reduce)");
let chosen = null;

export const moves = () => (chosen === null ? !wish.matches : chosen);

export function toggle() {
  chosen = !moves();
  tell();
}

export function picture(id) {
  const image = document.createElement("img");
  image.dataset.moment = id;
  image.alt = "";
  image.decoding = "async";
  image.draggable = false;
  show(image, moves());
  return image;
}

// Have the picture within an element move while it is pointed at or has the focus.
export function wake(element, image) {
  const on = () => show(image, true);
  const off = () => show(image, moves());
  element.addEventListener("pointerenter", on);
  element.addEventListener("focus", on);
  element.addEventListener("pointerleave", off);
  element.addEventListener("blur", off);
}

function show(image, moving) {
  const source = `${moving ? "thumbnails" : "stills"}/${image.dataset.moment}`;
  if (image.getAttribute("src") !== source) image.src = source;
}

function tell() {
  const button = document.getElementById("pause");
  button.setAttribute("aria-pressed", String(!moves()));
  button.title = moves() ? "Pause moving pictures (p)" : "Let pictures move (p)";
  document.documentElement.dataset.moving = String(moves());
  for (const image of document.querySelectorAll("img[data-moment]")) show(image, moves());
  for (const video of document.querySelectorAll("video")) moves() ? video.play().catch(() => {}) : video.pause();
}

export function start() {
  document.getElementById("pause").addEventListener("click", toggle);
  wish.addEventListener("change", tell);
  tell();
}
