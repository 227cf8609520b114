// Animated or still thumbnails: as the system prefers, until the user chooses. A still one is animated under the pointer.

const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
let userChoice = null;

export const isAnimated = () => (userChoice === null ? !reducedMotion.matches : userChoice);

export function toggle() {
  userChoice = !isAnimated();
  update();
}

export function picture(id) {
  const image = document.createElement("img");
  image.dataset.segment = id;
  image.alt = "";
  image.decoding = "async";
  image.draggable = false;
  setSource(image, isAnimated());
  return image;
}

// Animate the thumbnail within an element while it is under the pointer or has the focus.
export function animateOnHover(element, image) {
  const start = () => setSource(image, true);
  const stop = () => setSource(image, isAnimated());
  element.addEventListener("pointerenter", start);
  element.addEventListener("focus", start);
  element.addEventListener("pointerleave", stop);
  element.addEventListener("blur", stop);
}

function setSource(image, animated) {
  const source = `${animated ? "thumbnails" : "posters"}/${image.dataset.segment}`;
  if (image.getAttribute("src") !== source) image.src = source;
}

function update() {
  const button = document.getElementById("pause");
  button.setAttribute("aria-pressed", String(!isAnimated()));
  button.title = isAnimated() ? "Pause thumbnails (p)" : "Animate thumbnails (p)";
  document.documentElement.dataset.moving = String(isAnimated());
  for (const image of document.querySelectorAll("img[data-segment]")) setSource(image, isAnimated());
  for (const video of document.querySelectorAll("video")) isAnimated() ? video.play().catch(() => {}) : video.pause();
}

export function start() {
  document.getElementById("pause").addEventListener("click", toggle);
  reducedMotion.addEventListener("change", update);
  update();
}
