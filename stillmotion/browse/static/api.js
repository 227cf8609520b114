// What the server is asked. Its complaints become errors with its own words.

export class ApiError extends Error {
  constructor(words, status) {
    super(words);
    this.status = status;
  }
}

export async function fetchJson(address, options = {}) {
  const answer = await request(address, options);
  return answer.status === 204 ? null : answer.json();
}

export async function fetchBlob(address, options = {}) {
  return (await request(address, options)).blob();
}

async function request(address, options) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("Connection to the server lost. Start `stillmotion browse` again.", 0);
  }
  if (answer.ok) return answer;
  let words = `${answer.status} ${answer.statusText}`;
  try {
    words = (await answer.json()).error;
  } catch {
    // no words of the server's own
  }
  throw new ApiError(words, answer.status);
}

// A line at the foot of the page, for a while.
let hiding;
export function showToast(words) {
  const line = document.getElementById("toast");
  line.textContent = words;
  line.hidden = !words;
  clearTimeout(hiding);
  hiding = setTimeout(() => { line.hidden = true; }, 7000);
}

// Runs what a click or a key asks for; what goes wrong is said.
export function runAsync(work) {
  Promise.resolve().then(work).catch(error => {
    if (error.name !== "AbortError") showToast(error.message);
  });
}
