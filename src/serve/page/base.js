// base.js - small things that all the page's parts use.  Nothing here makes markup from strings: text
// becomes text nodes, and the page's security policy forbids the rest.

const $ = id => document.getElementById(id);

/* h('p', {class: 'x', onclick: f, hidden: true}, 'text', node, [node, ...]): an element.  Attributes and
 * children that are null, undefined or false are left out.  The attributes come last: with dir=auto each
 * child that is added has browsers look through all of them, and a select has its value only with its
 * options. */
function h(tag, props, ...children) {
    const e = document.createElement(tag);
    appendAll(e, children);
    for (const [name, value] of Object.entries(props || {})) {
        if (value === null || value === undefined || value === false)
            continue;
        if (name.startsWith('on'))
            e.addEventListener(name.slice(2), value);
        else if (name === 'value' || name === 'checked')
            e[name] = value;
        else
            e.setAttribute(name, value === true ? '' : value);
    }
    return e;
}

/* One by one: there may be more than a call takes arguments. */
function appendAll(e, children) {
    for (const c of children) {
        if (Array.isArray(c))
            appendAll(e, c);
        else if (c !== null && c !== undefined && c !== false)
            e.append(c);
    }
}

const ICONS = { // 24 x 24, stroked
    menu: 'M4 6h16M4 12h16M4 18h16',
    plus: 'M12 5v14M5 12h14',
    send: 'M12 19V5M6 11l6-6 6 6',
    stop: 'M7 7h10v10H7z',
    copy: 'M9 9h10v10H9zM5 15V5h10',
    check: 'M5 13l4 4L19 7',
    edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
    again: 'M20 12a8 8 0 1 1-2.3-5.6M20 4v5h-5',
    left: 'M14 6l-6 6 6 6',
    right: 'M10 6l6 6-6 6',
    more: 'M5.5 12h.01M12 12h.01M18.5 12h.01',
    close: 'M6 6l12 12M18 6L6 18',
    sliders: 'M4 8h10M18 8h2M4 16h2M10 16h10M16 6a2 2 0 1 0 0 4 2 2 0 0 0 0-4zM8 14a2 2 0 1 0 0 4 2 2 0 0 0 0-4z',
    search: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16.5 16.5L21 21',
    branch: 'M6 4v11M6 15a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM18 4a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM18 9c0 5-4 8-9.5 8.5',
    down: 'M12 5v14M6 13l6 6 6-6',
    info: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 11v5M12 8h.01',
    theme: 'M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18',
    tool: 'M5 6l6 6-6 6M13 18h7',
};

function icon(name) {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    svg.setAttribute('viewBox', '0 0 24 24');
    svg.setAttribute('aria-hidden', 'true');
    svg.setAttribute('class', 'icon icon-' + name);
    path.setAttribute('d', ICONS[name]);
    svg.append(path);
    return svg;
}

/* A button that shows an icon and says its label to those who cannot see it, or who wait over it. */
function iconButton(name, label, onclick, props) {
    return h('button', {type: 'button', class: 'icon-button', title: label, 'aria-label': label, onclick,
                        ...props}, icon(name));
}

/* A button that says what it does; kind: its class. */
function textButton(label, kind, onclick, props) {
    return h('button', {type: 'button', class: kind, onclick, ...props}, label);
}

/* 60 random bits in letters that need no escape anywhere. */
function newId() {
    const letters = '0123456789abcdefghjkmnpqrstvwxyz';
    return Array.from(crypto.getRandomValues(new Uint8Array(12)), b => letters[b & 31]).join('');
}

function formatBytes(n) {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let i = 0;
    while (n >= 1024 && i < units.length - 1) {
        n /= 1024;
        i++;
    }
    return (i && n < 100 ? n.toFixed(1) : Math.round(n)) + ' ' + units[i];
}

function formatCount(n) {
    if (n >= 1e9)
        return (n / 1e9).toFixed(1) + ' billion';
    return n >= 1e6 ? (n / 1e6).toFixed(1) + ' million' : Math.round(n).toLocaleString('en');
}

const formatRate = n => n >= 100 ? Math.round(n).toString() : n.toFixed(1);

function formatSpan(seconds) {
    if (seconds < 60)
        return Math.round(seconds) + ' s';
    if (seconds < 3600)
        return Math.floor(seconds / 60) + ' min';
    return Math.floor(seconds / 3600) + ' h ' + Math.floor(seconds % 3600 / 60) + ' min';
}

/* When, as short as it is clear: the hour of today, the day of this year, else the date. */
function formatWhen(ms) {
    const t = new Date(ms), now = new Date();
    if (t.toDateString() === now.toDateString())
        return t.toLocaleTimeString([], {hour: '2-digit', minute: '2-digit'});
    const day = {day: 'numeric', month: 'short'};
    return t.toLocaleDateString([], t.getFullYear() === now.getFullYear() ? day : {...day, year: 'numeric'});
}

/* The beginning of a text, cut between words where that is possible. */
function shorten(text, n) {
    const line = text.slice(0, n * 4).replace(/\s+/g, ' ').trim();
    if (line.length <= n)
        return line;
    const cut = line.slice(0, n), space = cut.lastIndexOf(' ');
    return (space > n / 2 ? cut.slice(0, space) : cut) + '…';
}

/* Says it to screen readers, when they have finished their sentence. */
function announce(text) {
    $('live').textContent = text;
}

async function copyText(text, button) {
    let done = true;
    try {
        await navigator.clipboard.writeText(text);
    } catch (e) { // no permission, or no secure context: the old way
        const area = h('textarea', {class: 'off-screen', value: text, 'aria-hidden': 'true'});
        document.body.append(area);
        area.select();
        done = document.execCommand('copy');
        area.remove();
        button.focus();
    }
    announce(done ? 'Copied' : 'The browser did not allow to copy');
    if (done && button.firstChild instanceof SVGElement) {
        button.replaceChildren(icon('check'));
        setTimeout(() => button.replaceChildren(icon('copy')), 1500);
    } else if (done) {
        const before = button.textContent;
        button.textContent = 'Copied';
        setTimeout(() => button.textContent = before, 1500);
    }
}

function download(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], {type}));
    h('a', {href: url, download: name}).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/* localStorage that may be forbidden. */
const memory = {
    get(name) {
        try {
            return localStorage.getItem('lode.' + name);
        } catch (e) {
            return null;
        }
    },
    set(name, value) {
        try {
            localStorage.setItem('lode.' + name, value);
        } catch (e) { /* the next visit starts afresh */ }
    },
};
