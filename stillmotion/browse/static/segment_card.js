// A segment as a thumbnail that links to it, with its name and, in results, its similarities.

import { picture, animateOnHover } from "./thumbnails.js";

// baselines: in results, the mean cosine between any two segments by appearance and by motion; the bars show how far a
// result exceeds it.
export function card(segment, baselines = null) {
  const link = document.createElement("a");
  link.className = "card";
  link.href = `#/segment/${segment.id}`;
  link.draggable = false;
  const image = picture(segment.id);
  image.loading = "lazy";
  image.addEventListener("load", () => image.classList.toggle("tall", image.naturalWidth < 0.9 * image.naturalHeight));
  animateOnHover(link, image);
  const label = document.createElement("span");
  label.className = "label";
  label.textContent = shortName(segment);
  const frame = document.createElement("span");
  frame.className = "frame";
  frame.append(image, label);
  link.append(frame);
  let description = `${segment.path}, ${timeRange(segment)}`;
  link.title = segment.path;
  if (baselines) {
    link.append(similarityBars(segment, baselines));
    const cosines = `appearance ${segment.appearance.toFixed(2)}, motion ${segment.motion.toFixed(2)}`;
    description += `, cosine similarity: ${cosines}`;
    link.title += `\ncosine similarity: ${cosines}`;
  }
  link.setAttribute("aria-label", description);
  return link;
}

function similarityBars(segment, baselines) {
  const bars = document.createElement("span");
  bars.className = "bars";
  bars.setAttribute("aria-hidden", "true");
  for (const name of ["appearance", "motion"]) {
    const bar = document.createElement("span");
    bar.className = name;
    const filled = document.createElement("i");
    const excess = (segment[name] - baselines[name]) / Math.max(1e-6, 1 - baselines[name]);
    filled.style.width = `${100 * Math.min(1, Math.max(0, excess))}%`;
    bar.append(filled);
    bars.append(bar);
  }
  return bars;
}

export function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

export function fileName(segment) {
  return segment.path.slice(segment.path.lastIndexOf("/") + 1);
}

export function folderName(segment) {
  return segment.path.slice(0, Math.max(0, segment.path.lastIndexOf("/")));
}

// The file name, and the time if the segment is a part of its video.
function shortName(segment) {
  return isPart(segment) ? `${fileName(segment)} · ${clock(segment.start)}` : fileName(segment);
}

export function isPart(segment) {
  return segment.end - segment.start < segment.duration - 0.25;
}

export function timeRange(segment) {
  return isPart(segment) ? `${clock(segment.start)} to ${clock(segment.end)} of ${clock(segment.duration)}` : clock(segment.duration);
}

export function clock(seconds) {
  const tenths = seconds < 10 && seconds % 1 ? (Math.round(seconds * 10) % 10) : 0;
  const whole = tenths ? Math.floor(seconds) : Math.round(seconds);
  const twoDigits = number => String(number).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return `${hours ? `${hours}:${twoDigits(minutes)}` : minutes}:${twoDigits(whole % 60)}${tenths ? `.${tenths}` : ""}`;
}
