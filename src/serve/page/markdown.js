// markdown.js - the Markdown that models write, as a tree and as DOM nodes.
//
// What comes is a stranger's: it may be cut anywhere, nested without end, or one line of a megabyte.  So
// every step is linear in the text (no regular expression that can go back over much, every search
// remembered), nesting is bounded, and what is not understood is shown as it was written.  HTML is text.
// Not known: reference links, indented code, setext headings, which models do not write.
//
//     parseMarkdown(text) -> [block]      block: {type, line: the number of its first line, ...}
//     parseInline(text) -> [string | {type, ...}]

const MAX_NESTING = 12;  // lists and quotes within each other
const MAX_EMPHASIS = 16; // open at once; older ones become text
const MAX_COLUMNS = 64;
const MAX_MATH = 2000;   // characters
const MAX_TITLE = 300;   // of a link; the page does not show it

/* ---- blocks ---- */

const isSpace = c => c === ' ' || c === '\t';

function indentOf(line) {
    let i = 0;
    while (i < line.length && isSpace(line[i]))
        i++;
    return i;
}

function runAt(line, i) {
    let n = 1;
    while (line[i + n] === line[i])
        n++;
    return n;
}

/* {char, n, info} of a line that opens a fence. */
function fenceOf(line) {
    const i = indentOf(line), c = line[i];
    if (c !== '`' && c !== '~')
        return null;
    const n = runAt(line, i), info = n >= 3 ? line.slice(i + n).trim() : '';
    return n < 3 || c === '`' && info.includes('`') ? null : {char: c, n, info, indent: i};
}

function closesFence(line, fence) {
    const i = indentOf(line);
    if (line[i] !== fence.char)
        return false;
    const n = runAt(line, i);
    return n >= fence.n && line.slice(i + n).trim() === '';
}

function headingOf(line) {
    const i = indentOf(line);
    if (line[i] !== '#' || i > 3)
        return null;
    const n = runAt(line, i);
    if (n > 6 || (i + n < line.length && !isSpace(line[i + n])))
        return null;
    let end = line.length;
    while (end > i + n && (isSpace(line[end - 1]) || line[end - 1] === '#'))
        end--;
    return {level: n, text: line.slice(i + n, end).trim()};
}

/* Three or more of one of - * _ and nothing else. */
function isRule(line) {
    let c = '', n = 0;
    for (const x of line) {
        if (isSpace(x))
            continue;
        if ((x !== '-' && x !== '*' && x !== '_') || (c && x !== c))
            return false;
        c = x;
        n++;
    }
    return n >= 3;
}

/* {indent, width, ordered, start}: width: where the item's own text begins. */
function markerOf(line) {
    const indent = indentOf(line);
    let i = indent;
    while (i - indent < 9 && line[i] >= '0' && line[i] <= '9')
        i++;
    const ordered = i > indent && (line[i] === '.' || line[i] === ')');
    if (!ordered && (i > indent || !'-*+'.includes(line[i] || ' ')))
        return null;
    i++;
    if (i < line.length && !isSpace(line[i]))
        return null;
    const start = ordered ? parseInt(line.slice(indent), 10) : 1;
    return {indent, width: i + (i < line.length), ordered, start};
}

const isQuote = line => line[indentOf(line)] === '>';

/* The cells of a table's row, or null where there is no bar. */
function cellsOf(line) {
    const cells = [];
    let cell = '', bars = 0;
    const text = line.trim();
    for (let i = text[0] === '|' ? 1 : 0, from = i; i <= text.length; i++) {
        if (text[i] === '\\' && text[i + 1] === '|') {
            cell += text.slice(from, i);
            from = i + 1;
            i++;
        } else if (i === text.length || text[i] === '|') {
            cell += text.slice(from, i);
            if (i < text.length || cell.trim())
                cells.push(cell.trim());
            bars += i < text.length;
            cell = '';
            from = i + 1;
        }
    }
    return bars || text[0] === '|' ? cells : null;
}

/* How the columns are aligned, where this is the line under a table's head. */
function columnsOf(line) {
    if (line === undefined || !'|:-'.includes(line.trim()[0] || ' ') || !line.includes('-'))
        return null;
    const cells = cellsOf(line);
    const good = cells && cells.length && cells.length <= MAX_COLUMNS &&
                 cells.every(c => c.length < 200 && /^:?-+:?$/.test(c));
    return good ? cells.map(c => c.endsWith(':') ? c[0] === ':' ? 'center' : 'right' : 'left') : null;
}

/* Whether a paragraph ends before this line. */
function interrupts(lines, i, depth) {
    const line = lines[i], m = depth < MAX_NESTING ? markerOf(line) : null;
    return line.trim() === '' || fenceOf(line) || headingOf(line) || isRule(line) ||
           (depth < MAX_NESTING && isQuote(line)) || (m && (!m.ordered || m.start === 1) && m.width < line.length) ||
           (line.includes('|') && columnsOf(lines[i + 1]));
}

const TAKERS = [takeFence, takeHeading, takeRule, takeQuote, takeList, takeTable, takeMath];

function parseLines(lines, depth) {
    const out = [];
    let i = 0;
    while (i < lines.length) {
        if (lines[i].trim() === '') {
            i++;
            continue;
        }
        let taken = null;
        for (let k = 0; !taken && k < TAKERS.length; k++)
            taken = TAKERS[k](lines, i, depth);
        taken = taken || takeParagraph(lines, i, depth);
        taken.block.line = i;
        out.push(taken.block);
        i = taken.end;
    }
    return out;
}

function takeFence(lines, i) {
    const fence = fenceOf(lines[i]);
    if (!fence)
        return null;
    let end = i + 1;
    while (end < lines.length && !closesFence(lines[end], fence))
        end++;
    const code = lines.slice(i + 1, end).map(l => l.slice(Math.min(fence.indent, indentOf(l))));
    return {block: {type: 'code', lang: fence.info.split(/\s/, 1)[0].slice(0, 40), text: code.join('\n'),
                    open: end === lines.length}, end: end + 1};
}

function takeHeading(lines, i) {
    const head = headingOf(lines[i]);
    return head && {block: {type: 'heading', level: head.level, inline: parseInline(head.text)}, end: i + 1};
}

function takeRule(lines, i) {
    return isRule(lines[i]) ? {block: {type: 'rule'}, end: i + 1} : null;
}

function takeQuote(lines, i, depth) {
    const inner = [];
    if (depth >= MAX_NESTING)
        return null;
    let end = i;
    for (; end < lines.length && isQuote(lines[end]); end++) {
        const at = indentOf(lines[end]) + 1;
        inner.push(lines[end].slice(at + (lines[end][at] === ' ')));
    }
    return end > i ? {block: {type: 'quote', blocks: parseLines(inner, depth + 1)}, end} : null;
}

/* Models indent what belongs to an item by two, three or four columns: two more than its mark is enough. */
function takeList(lines, i, depth) {
    const first = depth < MAX_NESTING ? markerOf(lines[i]) : null;
    if (!first)
        return null;
    const items = [];
    let end = i, blank = false;
    for (; end < lines.length; end++) {
        const line = lines[end], indent = indentOf(line);
        if (indent === line.length) {
            blank = true;
            items[items.length - 1].push('');
            continue;
        }
        const m = indent < first.indent + 2 ? markerOf(line) : null;
        if (m && !isRule(line)) {
            if (m.ordered !== first.ordered)
                break;
            items.push([line.slice(m.width)]);
        } else if (end === i) {
            return null;
        } else if (indent >= first.indent + 2) {
            items[items.length - 1].push(line.slice(Math.min(indent, first.width)));
        } else if (!blank && !interrupts(lines, end, depth)) {
            items[items.length - 1].push(line); // a paragraph that goes on without its indent
        } else {
            break;
        }
        blank = false;
    }
    return {block: {type: 'list', ordered: first.ordered, start: first.start,
                    items: items.map(l => parseLines(l, depth + 1))}, end};
}

function takeTable(lines, i) {
    if (!lines[i].includes('|'))
        return null;
    const align = columnsOf(lines[i + 1]), head = align && cellsOf(lines[i]);
    if (!head || head.length !== align.length)
        return null;
    const rows = [];
    let end = i + 2;
    for (; end < lines.length && lines[end].includes('|') && lines[end].trim(); end++)
        rows.push(cellsOf(lines[end]).slice(0, align.length).map(c => parseInline(c)));
    return {block: {type: 'table', align, head: head.map(c => parseInline(c)), rows}, end};
}

/* $$ ... $$ or \[ ... \], over a few lines without a blank one. */
function takeMath(lines, i) {
    const text = lines[i].trim(), open = text.slice(0, 2), close = open === '$$' ? '$$' : '\\]';
    if (open !== '$$' && open !== '\\[')
        return null;
    for (let end = i, size = 0; end < lines.length && end < i + 40 && size < MAX_MATH; end++) {
        const line = lines[end].trim();
        size += line.length;
        if (line === '')
            return null;
        if (line.endsWith(close) && (end > i || line.length >= 4)) {
            const all = lines.slice(i, end + 1).join('\n').trim();
            return size <= MAX_MATH ? {block: {type: 'math', text: all.slice(2, -2).trim()}, end: end + 1} : null;
        }
    }
    return null;
}

function takeParagraph(lines, i, depth) {
    let end = i + 1;
    while (end < lines.length && !interrupts(lines, end, depth))
        end++;
    return {block: {type: 'paragraph', inline: parseInline(lines.slice(i, end).join('\n'))}, end};
}

const parseMarkdown = text => parseLines(text.split(/\r\n|\n|\r/), 0);

/* ---- within a line ---- */

const PLAIN = /[^\\`*_~[\]!<$&\nhH]+/y;
const BARE_URL = /https?:\/\/[^\s<>"`\\^{|}[\]]+/iy;
const AUTO_LINK = /<(https?:\/\/[^\s<>]*|mailto:[^\s<>]*)>/iy;
const LINE_BREAK = /<br *\/?>/iy;
const ENTITY = /&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,7}|#x[\da-f]{1,6});/iy;
const ENTITIES = {amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0'};
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}_]/u;

function matchAt(pattern, s, i) {
    pattern.lastIndex = i;
    return pattern.exec(s);
}

/* Only these leave the page. */
function safeHref(url) {
    return /^(https?:\/\/|mailto:)[^\s]/i.test(url) && url.length < 4000 ? url : null;
}

function parseInline(s, inLink) {
    return new Inline(s, inLink).parse();
}

class Inline {
    constructor(s, inLink) {
        this.s = s;
        this.inLink = inLink;
        this.out = [];   // nodes; a run of * or _ that may open something is {type: 'run', char, n}
        this.stack = []; // of such runs: {char, at: its place in out}
        this.found = {}; // what nextOf has seen
    }

    parse() {
        const s = this.s;
        let i = 0;
        while (i < s.length) {
            const m = matchAt(PLAIN, s, i);
            if (m) {
                this.out.push(m[0]);
                i += m[0].length;
            } else {
                i = this.special(i);
            }
        }
        return joined(this.out);
    }

    /* The character at i means something, or is one that could have.  Returns where to go on. */
    special(i) {
        const s = this.s, c = s[i];
        let end = 0;
        if (c === '\\')
            end = this.escape(i);
        else if (c === '`')
            end = this.code(i);
        else if (c === '*' || c === '_' || c === '~')
            end = this.emphasis(i);
        else if (c === '[' || (c === '!' && s[i + 1] === '['))
            end = this.link(i);
        else if (c === '<')
            end = this.angle(i);
        else if (c === '$')
            end = this.dollar(i);
        else if (c === '&')
            end = this.entity(i);
        else if (c === '\n')
            end = this.lineBreak(i);
        else if (c === 'h' || c === 'H')
            end = this.bareUrl(i);
        if (end)
            return end;
        this.out.push(c);
        return i + 1;
    }

    /* Where text next stands at or behind i, or -1.  Calls go forward, so that all of them together
     * read the text once. */
    nextOf(text, i) {
        const f = this.found[text];
        if (f === undefined || (f >= 0 && f < i))
            this.found[text] = this.s.indexOf(text, i);
        return this.found[text];
    }

    escape(i) {
        const s = this.s, c = s[i + 1];
        if (c === '(' || c === '[') {
            const end = this.nextOf(c === '(' ? '\\)' : '\\]', i + 2);
            if (end > 0 && end - i < MAX_MATH)
                return this.math(s.slice(i + 2, end), end + 2);
        }
        if (c === '\n')
            return this.lineBreak(i + 1);
        if (c === undefined || !ESCAPABLE.test(c))
            return 0;
        this.out.push(c);
        return i + 2;
    }

    /* For each run of backticks, where the next of its length is: found backwards, once. */
    backticks() {
        if (!this.ticks) {
            const runs = [], last = new Map();
            for (let i = this.s.indexOf('`'); i >= 0; i = this.s.indexOf('`', i)) {
                const n = runAt(this.s, i);
                runs.push([i, n]);
                i += n;
            }
            this.ticks = new Map();
            for (const [i, n] of runs.reverse()) {
                this.ticks.set(i, last.get(n));
                last.set(n, i);
            }
        }
        return this.ticks;
    }

    code(i) {
        const n = runAt(this.s, i), end = this.backticks().get(i);
        if (end === undefined) {
            this.out.push('`'.repeat(n));
            return i + n;
        }
        let text = this.s.slice(i + n, end).replace(/\n/g, ' ');
        if (text.length > 2 && text[0] === ' ' && text.endsWith(' '))
            text = text.slice(1, -1);
        this.out.push({type: 'code', text});
        return end + n;
    }

    math(text, end) {
        this.out.push({type: 'math', text: text.trim()});
        return end;
    }

    /* A price is no formula: no space inside at either end, no digit behind. */
    dollar(i) {
        const s = this.s, double = s[i + 1] === '$', from = i + (double ? 2 : 1);
        const end = this.nextOf(double ? '$$' : '$', from);
        const good = end > from && end - from < (double ? MAX_MATH : 400) &&
                     (double || !(/\s/.test(s[from]) || /\s/.test(s[end - 1]) || /\d/.test(s[end + 1] || '') ||
                                  this.nextOf('\n', from) >= 0 && this.nextOf('\n', from) < end));
        return good ? this.math(s.slice(from, end), end + (double ? 2 : 1)) : 0;
    }

    entity(i) {
        const m = matchAt(ENTITY, this.s, i);
        if (!m)
            return 0;
        const name = m[0].slice(1, -1).toLowerCase();
        let text = ENTITIES[name];
        if (name[0] === '#') {
            const n = name[1] === 'x' ? parseInt(name.slice(2), 16) : parseInt(name.slice(1), 10);
            text = n && n < 0x110000 && !(n >= 0xd800 && n < 0xe000) ? String.fromCodePoint(n) : '\ufffd';
        }
        this.out.push(text);
        return i + m[0].length;
    }

    lineBreak(i) {
        const last = this.out[this.out.length - 1];
        if (typeof last === 'string')
            this.out[this.out.length - 1] = last.trimEnd();
        this.out.push({type: 'break'});
        i++;
        while (isSpace(this.s[i] || ''))
            i++;
        return i;
    }

    angle(i) {
        const br = matchAt(LINE_BREAK, this.s, i), auto = br || this.inLink ? null : matchAt(AUTO_LINK, this.s, i);
        if (br)
            this.out.push({type: 'break'});
        else if (auto && safeHref(auto[1]))
            this.out.push({type: 'link', href: auto[1], inline: [auto[1]]});
        else
            return 0;
        return i + (br || auto)[0].length;
    }

    bareUrl(i) {
        const before = this.s[i - 1];
        const m = this.inLink || (before && WORD.test(before)) ? null : matchAt(BARE_URL, this.s, i);
        if (!m)
            return 0;
        let end = m[0].length;
        const opens = m[0].includes('(');
        while (end > 8 && (".,;:!?'*_~".includes(m[0][end - 1]) || (m[0][end - 1] === ')' && !opens)))
            end--;
        const url = m[0].slice(0, end);
        this.out.push({type: 'link', href: url, inline: [url]});
        return i + end;
    }

    /* For each [ its ]. */
    brackets() {
        if (!this.pairs) {
            const open = [];
            this.pairs = new Map();
            for (let i = 0; i < this.s.length; i++) {
                if (this.s[i] === '\\')
                    i++;
                else if (this.s[i] === '[')
                    open.push(i);
                else if (this.s[i] === ']' && open.length)
                    this.pairs.set(open.pop(), i);
            }
        }
        return this.pairs;
    }

    /* (url "title"): {href, end}.  Of brackets within the url two levels count, so that no part of the
     * text is looked at more than three times. */
    destination(i) {
        const s = this.s;
        let depth = 0, from = ++i;
        const angled = s[i] === '<';
        from += angled;
        for (i = from; i < s.length; i++) {
            const c = s[i];
            if (c === ' ' || c === '\n' || c === '<' || (angled && c === '>'))
                break;
            if (c === ')' && !angled && depth-- === 0)
                break;
            if (c === '(' && ++depth > 2)
                return null;
        }
        const href = s.slice(from, i);
        i += angled && s[i] === '>';
        while (s[i] === ' ')
            i++;
        if (s[i] === '"') {
            const title = ++i;
            while (i < s.length && s[i] !== '"' && i - title < MAX_TITLE)
                i++;
            i++;
        }
        return s[i] === ')' ? {href, end: i + 1} : null;
    }

    link(i) {
        const s = this.s, image = s[i] === '!', open = i + image;
        if (this.inLink)
            return 0;
        const close = this.brackets().get(open);
        const to = close !== undefined && s[close + 1] === '(' ? this.destination(close + 1) : null;
        if (!to)
            return 0;
        const inline = parseInline(s.slice(open + 1, close), true), href = safeHref(to.href);
        if (href) { // a picture is not fetched: it is a link to it
            this.out.push({type: 'link', href, inline: inline.length ? inline : [href], image});
        } else { // as it was written
            this.out.push(s.slice(i, open + 1));
            for (const x of inline)
                this.out.push(x);
            this.out.push(s.slice(close, to.end));
        }
        return to.end;
    }

    emphasis(i) {
        const s = this.s, c = s[i], n = runAt(s, i), before = s[i - 1] || ' ', after = s[i + n] || ' ';
        const free = c !== '_'; // within words too
        let opens = !/\s/.test(after) && (free || !WORD.test(before));
        let closes = !/\s/.test(before) && (free || !WORD.test(after));
        if (c === '~' ? n !== 2 : n > 3)
            opens = closes = false;
        let left = n;
        for (let k = this.stack.length - 1; closes && left && k >= 0; k--) {
            const op = this.stack[k];
            if (op.char === c) {
                left = this.close(k, left);
                k = this.stack.length; // the same may close once more
            }
        }
        if (left && opens) {
            if (this.stack.length === MAX_EMPHASIS)
                this.stack.shift();
            this.stack.push({char: c, at: this.out.length});
            this.out.push({type: 'run', char: c, n: left});
        } else if (left) {
            this.out.push(c.repeat(left));
        }
        return i + n;
    }

    /* What stands behind the k-th open run becomes its content; returns what is left of the closing one. */
    close(k, n) {
        const op = this.stack[k], run = this.out[op.at], used = run.n >= 2 && n >= 2 ? 2 : 1;
        const inline = joined(this.out.splice(op.at + 1));
        run.n -= used;
        this.stack.length = k + (run.n > 0);
        if (run.n === 0)
            this.out.length = op.at;
        this.out.push({type: run.char === '~' ? 'deleted' : used === 2 ? 'strong' : 'em', inline});
        return n - used;
    }
}

/* Runs that opened nothing are text, and text is in one piece. */
function joined(nodes) {
    const out = [];
    let text = [];
    const flush = () => {
        if (text.length)
            out.push(text.join(''));
        text = [];
    };
    for (const x of nodes) {
        if (typeof x === 'string') {
            text.push(x);
        } else if (x.type === 'run') {
            text.push(x.char.repeat(x.n));
        } else {
            flush();
            out.push(x);
        }
    }
    flush();
    return out;
}
