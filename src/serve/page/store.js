// store.js - the server's answers and the places where chats are kept: by the server, or, where it keeps
// none, in this browser.  Both have list(q, offset), get(id), put(id, body) and del(id).

class HttpError extends Error {
    constructor(status, message) {
        super(message);
        this.status = status;
    }
}

/* No answer at all. */
class GoneError extends Error {}

const key = {
    get: () => sessionStorage.getItem('lode.key') || '',
    set: value => value ? sessionStorage.setItem('lode.key', value) : sessionStorage.removeItem('lode.key'),
};

async function errorOf(response) {
    let message = 'the server answered ' + response.status + ' ' + response.statusText;
    try {
        const j = await response.json();
        message = j.error && j.error.message || message;
    } catch (e) { /* not JSON */ }
    return new HttpError(response.status, message);
}

/* A response that is good, or a HttpError or GoneError.  Where a key is needed, asks for it and tries
 * again; with quiet it fails instead. */
async function request(path, options, quiet) {
    for (;;) {
        let response;
        const headers = {...(options && options.headers)};
        if (key.get())
            headers.Authorization = 'Bearer ' + key.get();
        try {
            response = await fetch(path, {cache: 'no-store', ...options, headers});
        } catch (e) {
            if (e.name === 'AbortError')
                throw e;
            throw new GoneError('the server does not answer');
        }
        if (response.ok)
            return response;
        const error = await errorOf(response);
        if (response.status !== 401 || quiet || !await askForKey())
            throw error;
    }
}

const getJson = async (path, quiet) => (await request(path, {}, quiet)).json();

const sendJson = (method, path, body, more) =>
    request(path, {method, headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body), ...more});

const serverStore = {
    name: 'server',
    list: (q, offset) => getJson('/lode/chats?limit=100&offset=' + (offset || 0) +
                                 (q ? '&q=' + encodeURIComponent(q) : '')),
    get: id => getJson('/lode/chats/' + id),
    put: async (id, body) => (await sendJson('PUT', '/lode/chats/' + id, body)).json(),
    del: async id => (await request('/lode/chats/' + id, {method: 'DELETE'})).json(),
};

/* IndexedDB, one record a chat.  As on the server, a put adds messages and replaces them by id. */
const browserStore = {
    name: 'browser',

    open() {
        return this.db = this.db || new Promise((good, bad) => {
            const r = indexedDB.open('lode', 1);
            r.onupgradeneeded = () => r.result.createObjectStore('chats', {keyPath: 'id'});
            r.onsuccess = () => good(r.result);
            r.onerror = () => bad(new Error('this browser keeps no data for the page: ' + r.error.message));
        });
    },

    async run(mode, f) {
        const db = await this.open();
        return new Promise((good, bad) => {
            const t = db.transaction('chats', mode);
            let result;
            f(t.objectStore('chats'), value => result = value);
            t.oncomplete = () => good(result);
            t.onerror = t.onabort = () => bad(t.error || new Error('the browser could not store the chat'));
        });
    },

    async list(q, offset) {
        const all = await this.run('readonly', (s, give) => {
            const r = s.getAll();
            r.onsuccess = () => give(r.result);
        });
        const want = (q || '').toLowerCase(), found = [];
        for (const c of all.sort((a, b) => b.updated - a.updated)) {
            const hit = want && c.messages.find(m => (m.content || '').toLowerCase().includes(want));
            const at = hit ? Math.max(0, hit.content.toLowerCase().indexOf(want) - 60) : 0;
            if (!want || hit || c.title.toLowerCase().includes(want))
                found.push({id: c.id, title: c.title, created: c.created, updated: c.updated,
                            n_messages: c.messages.length, snippet: hit ? hit.content.slice(at, at + 180) : ''});
        }
        const from = offset || 0;
        return {chats: found.slice(from, from + 100), more: found.length > from + 100};
    },

    async get(id) {
        const chat = await this.run('readonly', (s, give) => {
            const r = s.get(id);
            r.onsuccess = () => give(r.result);
        });
        if (!chat)
            throw new HttpError(404, 'there is no such chat in this browser');
        return chat;
    },

    async put(id, body) {
        const found = await this.run('readwrite', (s, give) => {
            const r = s.get(id);
            r.onsuccess = () => {
                const old = r.result || (body.new ? {id, title: '', created: Date.now(), messages: []} : null);
                if (!old)
                    return;
                const messages = new Map(old.messages.map(m => [m.id, m]));
                for (const m of body.messages || [])
                    messages.set(m.id, m);
                const chat = {...old, updated: Date.now(), ...body, messages: [...messages.values()]};
                delete chat.new;
                s.put(chat);
                give(true);
            };
        });
        if (!found)
            throw new HttpError(404, 'there is no such chat in this browser');
    },

    del(id) {
        return this.run('readwrite', s => s.delete(id));
    },
};
