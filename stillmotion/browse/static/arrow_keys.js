// Move the focus by the arrow keys to the nearest card in that direction.

const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const SIDE_WEIGHT = 2.5; // how much more a distance to the side counts

export function isArrow(event) {
  return event.key in DIRECTIONS && !event.altKey && !event.ctrlKey && !event.metaKey && !event.shiftKey;
}

// The nearest of some points ({ x, y }) in the direction of a key, or null.
export function nearestInDirection(key, from, points) {
  const [dx, dy] = DIRECTIONS[key];
  let best = null;
  let leastDistance = Infinity;
  for (const point of points) {
    const along = (point.x - from.x) * dx + (point.y - from.y) * dy;
    const aside = Math.abs((point.x - from.x) * dy) + Math.abs((point.y - from.y) * dx);
    if (along <= 1e-6 || aside > 3 * along) continue;
    const distance = along + SIDE_WEIGHT * aside;
    if (distance < leastDistance) [best, leastDistance] = [point, distance];
  }
  return best;
}

export function focusNeighbor(event, root) {
  const cards = [...root.querySelectorAll("a.card")].filter(card => card.offsetParent);
  if (!cards.length) return;
  event.preventDefault();
  const points = cards.map(card => {
    const box = card.getBoundingClientRect();
    return { card, x: box.left + box.width / 2, y: box.top + box.height / 2 };
  });
  const from = points.find(point => point.card === document.activeElement);
  const next = from ? nearestInDirection(event.key, from, points) : points.find(point => point.y > 60) || points[0];
  if (!next) return;
  next.card.focus({ preventScroll: true });
  next.card.scrollIntoView({ block: "nearest" });
}
