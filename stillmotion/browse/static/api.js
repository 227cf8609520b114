// Requests to the server; its errors are thrown with their messages.

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function fetchJson(url, options = {}) {
  const response = await request(url, options);
  return response.status === 204 ? null : response.json();
}

export async function fetchBlob(url, options = {}) {
  return (await request(url, options)).blob();
}

async function request(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("Connection to the server lost. Start `stillmotion browse` again.", 0);
  }
  if (response.ok) return response;
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error;
  } catch {
    // the response has no message
  }
  throw new ApiError(message, response.status);
}

// Show a message at the bottom of the page for some seconds.
let hideTimer;
export function showToast(message) {
  const line = document.getElementById("toast");
  line.textContent = message;
  line.hidden = !message;
  clearTimeout(hideTimer);
  hideTimer = setTimeout(() => { line.hidden = true; }, 7000);
}

// Run an asynchronous action; an error is shown as a message.
export function runAsync(action) {
  Promise.resolve().then(action).catch(error => {
    if (error.name !== "AbortError") showToast(error.message);
  });
}
