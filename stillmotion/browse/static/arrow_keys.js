// From picture to picture by the arrow keys: to the nearest one in the direction of the key.

const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const ASIDE = 2.5; // how much more a step to the side counts

export function isArrow(event) {
  return event.key in WAYS && !event.altKey && !event.ctrlKey && !event.metaKey && !event.shiftKey;
}

// The nearest of some places ({ x, y }) in the direction of a key; null where there is none.
export function nearestInDirection(key, from, places) {
  const [dx, dy] = WAYS[key];
  let best = null;
  let least = Infinity;
  for (const place of places) {
    const along = (place.x - from.x) * dx + (place.y - from.y) * dy;
    const aside = Math.abs((place.x - from.x) * dy) + Math.abs((place.y - from.y) * dx);
    if (along <= 1e-6 || aside > 3 * along) continue;
    const far = along + ASIDE * aside;
    if (far < least) [best, least] = [place, far];
  }
  return best;
}

export function focusNeighbor(event, root) {
  const cards = [...root.querySelectorAll("a.card")].filter(card => card.offsetParent);
  if (!cards.length) return;
  event.preventDefault();
  const places = cards.map(card => {
    const box = card.getBoundingClientRect();
    return { card, x: box.left + box.width / 2, y: box.top + box.height / 2 };
  });
  const from = places.find(place => place.card === document.activeElement);
  const next = from ? nearestInDirection(event.key, from, places) : places.find(place => place.y > 60) || places[0];
  if (!next) return;
  next.card.focus({ preventScroll: true });
  next.card.scrollIntoView({ block: "nearest" });
}
