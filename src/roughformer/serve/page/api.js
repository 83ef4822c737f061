// The service: requests with the token if one is needed, and what its errors say.

const KEY = "roughformer-token";
let token = "";
try {
  token = sessionStorage.getItem(KEY) || "";
} catch {
  // Storage may be forbidden: then the token lasts as long as the page.
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setToken(value) {
  token = value.trim();
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // As above.
  }
}

export function url(path) {
  return new URL(path, document.baseURI);
}

export async function request(path, options = {}) {
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(url(path), { ...options, headers });
  } catch {
    throw new ApiError(0, "the server does not answer");
  }
  if (answer.status === 204) return null;
  const text = await answer.text();
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // Something between us and the service answered in its own words.
  }
  if (!answer.ok) {
    const said = body?.error?.message ?? body?.detail ?? `the server answered ${answer.status}`;
    throw new ApiError(answer.status, typeof said === "string" ? said : JSON.stringify(said));
  }
  return body;
}

export function post(path, body) {
  return request(path, { method: "POST", body: JSON.stringify(body) });
}

/** Removes a stream; also while the page is being left. Nobody waits for the answer. */
export function forget(id) {
  request(`v1/streams/${encodeURIComponent(id)}`, { method: "DELETE", keepalive: true }).catch(
    () => {},
  );
}

/**
 * A WebSocket of a stream, which shows its observations too if that is wished. Browsers cannot set
 * headers here: a token goes as a protocol.
 */
export function socketOf(id, observations) {
  const there = url(`v1/streams/${encodeURIComponent(id)}`);
  if (observations) there.searchParams.set("observations", "true");
  there.protocol = there.protocol === "https:" ? "wss:" : "ws:";
  return token ? new WebSocket(there, ["roughformer", `bearer.${token}`]) : new WebSocket(there);
}
