// Whether pictures move: as the system says, until one chooses. A picture that is paused moves under the pointer.

const wish = matchMedia("(prefers-reduced-motion: reduce)");
let chosen = null;

export const isAnimated = () => (chosen === null ? !wish.matches : chosen);

export function toggle() {
  chosen = !isAnimated();
  tell();
}

export function picture(id) {
  const image = document.createElement("img");
  image.dataset.segment = id;
  image.alt = "";
  image.decoding = "async";
  image.draggable = false;
  show(image, isAnimated());
  return image;
}

// Have the picture within an element move while it is pointed at or has the focus.
export function animateOnHover(element, image) {
  const on = () => show(image, true);
  const off = () => show(image, isAnimated());
  element.addEventListener("pointerenter", on);
  element.addEventListener("focus", on);
  element.addEventListener("pointerleave", off);
  element.addEventListener("blur", off);
}

function show(image, moving) {
  const source = `${moving ? "thumbnails" : "posters"}/${image.dataset.segment}`;
  if (image.getAttribute("src") !== source) image.src = source;
}

function tell() {
  const button = document.getElementById("pause");
  button.setAttribute("aria-pressed", String(!isAnimated()));
  button.title = isAnimated() ? "Pause moving pictures (p)" : "Let pictures move (p)";
  document.documentElement.dataset.moving = String(isAnimated());
  for (const image of document.querySelectorAll("img[data-segment]")) show(image, isAnimated());
  for (const video of document.querySelectorAll("video")) isAnimated() ? video.play().catch(() => {}) : video.pause();
}

export function start() {
  document.getElementById("pause").addEventListener("click", toggle);
  wish.addEventListener("change", tell);
  tell();
}
