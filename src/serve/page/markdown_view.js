// markdown_view.js - parsed Markdown as DOM nodes, and a view that grows with a stream.

const INLINE_TAGS = {strong: 'strong', em: 'em', deleted: 's'};

function inlineNode(x) {
    if (typeof x === 'string')
        return document.createTextNode(x);
    switch (x.type) {
    case 'code':
        return h('code', null, x.text);
    case 'math':
        return h('span', {class: 'math', role: 'math', 'aria-label': x.text}, x.text);
    case 'break':
        return h('br');
    case 'link':
        return h('a', {href: x.href, target: '_blank', rel: 'noopener noreferrer nofollow',
                       title: x.image ? 'A picture, which this page does not load: ' + x.href : x.href},
                 x.image ? '🖼 ' : null, x.inline.map(inlineNode));
    default:
        return h(INLINE_TAGS[x.type], null, x.inline.map(inlineNode));
    }
}

function codeNode(b) {
    const code = h('code', null, b.text);
    const copy = textButton('Copy', 'copy', () => copyText(code.textContent, copy));
    return h('div', {class: 'code'},
             h('div', {class: 'code-head'}, h('span', null, b.lang || 'text'), copy),
             h('pre', {tabindex: '0', 'aria-label': 'Code' + (b.lang ? ', ' + b.lang : '')}, code));
}

function tableNode(b) {
    const row = (cells, tag) => h('tr', null, b.align.map((align, i) =>
        h(tag, {class: align === 'left' ? null : align, scope: tag === 'th' ? 'col' : null},
          (cells[i] || []).map(inlineNode))));
    return h('div', {class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Table'},
             h('table', null, h('thead', null, row(b.head, 'th')),
               h('tbody', null, b.rows.map(r => row(r, 'td')))));
}

/* A list's item that is one paragraph needs no element for it; [ ] and [x] are boxes. */
function itemNode(blocks) {
    const only = blocks.length && blocks[0].type === 'paragraph' ? blocks[0].inline : null;
    if (!only)
        return h('li', null, blocks.map(blockNode));
    const first = typeof only[0] === 'string' ? only[0] : '', box = first.match(/^\[([ xX])\] /);
    const inline = box ? [(box[1] === ' ' ? '☐ ' : '☑ ') + first.slice(4), ...only.slice(1)] : only;
    return h('li', box ? {class: 'task'} : null, inline.map(inlineNode), blocks.slice(1).map(blockNode));
}

function blockNode(b) {
    switch (b.type) {
    case 'heading': // the page's own headings are the first two levels
        return h('h' + Math.min(6, b.level + 2), {class: 'h' + b.level, dir: 'auto'}, b.inline.map(inlineNode));
    case 'code':
        return codeNode(b);
    case 'rule':
        return h('hr');
    case 'quote':
        return h('blockquote', null, b.blocks.map(blockNode));
    case 'list':
        return h(b.ordered ? 'ol' : 'ul', {start: b.ordered && b.start !== 1 ? b.start : null, dir: 'auto'},
                 b.items.map(itemNode));
    case 'table':
        return tableNode(b);
    case 'math':
        return h('div', {class: 'math block', role: 'math', 'aria-label': b.text, tabindex: '0'}, b.text);
    default:
        return h('p', {dir: 'auto'}, b.inline.map(inlineNode));
    }
}

/* Shows a text that grows at its end.  Only its last block can still change (no block reaches back), so
 * that one is parsed anew and the others stay, with what is selected in them. */
class MarkdownView {
    constructor(element) {
        this.element = element;
        this.set('');
    }

    set(text) {
        this.settled = 0; // where the last block begins in the text
        this.last = null; // {block, node}
        this.element.replaceChildren();
        this.update(text);
    }

    /* text: the whole, which begins with what was there. */
    update(text) {
        const tail = text.slice(this.settled), blocks = parseMarkdown(tail);
        if (!blocks.length)
            return;
        const starts = lineStarts(tail, blocks[blocks.length - 1].line);
        if (!this.grow(blocks)) {
            if (this.last)
                this.last.node.remove();
            const nodes = blocks.map(blockNode);
            appendAll(this.element, nodes);
            this.last = {block: blocks[blocks.length - 1], node: nodes[nodes.length - 1]};
        }
        this.settled += starts;
    }

    /* A code block that became longer keeps its element, and where the reader has scrolled it to. */
    grow(blocks) {
        const was = this.last && this.last.block, now = blocks[0];
        if (!was || blocks.length !== 1 || was.type !== 'code' || now.type !== 'code' || was.lang !== now.lang ||
            !now.text.startsWith(was.text))
            return false;
        this.last.node.querySelector('code').append(now.text.slice(was.text.length));
        this.last.block = now;
        return true;
    }
}

/* Where the n-th line of the text begins. */
function lineStarts(text, n) {
    const ends = /\r\n|\n|\r/g;
    for (let i = 0; i < n; i++)
        ends.exec(text);
    return n ? ends.lastIndex : 0;
}
