// A segment as a thumbnail that links to it, with its name and, in results, its similarities.

import { picture, animateOnHover } from "./thumbnails.js";

// isResult: adds bars that show how many percent of random pairs of segments are less similar.
export function card(segment, isResult = false) {
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
  if (isResult) {
    link.append(similarityBars(segment));
    const texts = ["appearance", "motion"].map(name => similarityText(segment, name));
    description += `, ${texts.join(", ")}`;
    link.title += `\n${texts.join("\n")}`;
    if (segment.alignment) link.title += `\nmotion matches ${segment.alignment}`;
  }
  link.setAttribute("aria-label", description);
  return link;
}

function similarityText(segment, name) {
  const percentile = segment[`${name}_percentile`];
  const rank = percentile === null ? "" : `, more than ${percentile.toFixed(1)} % of random pairs`;
  return `${name} ${segment[name].toFixed(2)}${rank}`;
}

function similarityBars(segment) {
  const bars = document.createElement("span");
  bars.className = "bars";
  bars.setAttribute("aria-hidden", "true");
  for (const name of ["appearance", "motion"]) {
    const bar = document.createElement("span");
    bar.className = name;
    const filled = document.createElement("i");
    filled.style.width = `${segment[`${name}_percentile`] ?? 0}%`;
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
