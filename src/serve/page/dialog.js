// dialog.js - questions that must be answered first, and menus.

/* ask({title, text, input: value or undefined, password, ok, danger}) -> the text, true, or null for no.
 * One at a time: a second waits for the first. */
let asking = Promise.resolve();

function ask(q) {
    const answer = asking.then(() => new Promise(give => {
        const dialog = $('dialog'), input = $('dialog-input');
        $('dialog-title').textContent = q.title;
        $('dialog-text').textContent = q.text || '';
        $('dialog-text').hidden = !q.text;
        input.hidden = q.input === undefined;
        input.type = q.password ? 'password' : 'text';
        input.value = q.input || '';
        input.maxLength = q.max || 1000;
        $('dialog-ok').textContent = q.ok || 'OK';
        $('dialog-ok').className = q.danger ? 'danger' : 'primary';
        $('dialog-cancel').onclick = () => dialog.close('');
        dialog.returnValue = '';
        $('dialog-form').onsubmit = e => {
            e.preventDefault();
            dialog.close('ok');
        };
        dialog.onclose = () => give(dialog.returnValue !== 'ok' ? null : q.input === undefined ? true : input.value);
        dialog.showModal();
        if (q.input !== undefined)
            input.select();
        else
            $(q.danger ? 'dialog-cancel' : 'dialog-ok').focus();
    }));
    asking = answer.catch(() => {});
    return answer;
}

/* Whether there is a key to try now.  Requests that fail together ask once. */
let keyQuestion = null;

function askForKey() {
    keyQuestion = keyQuestion || ask({
        title: 'This server asks for a key', password: true, input: '', ok: 'Use it',
        text: (key.get() ? 'It does not take the one that was given. ' : '') +
              'It is what was given to lode serve as --api-key. This tab remembers it until it is closed.',
    }).then(value => {
        keyQuestion = null;
        if (value === null || !value.trim())
            return false;
        key.set(value.trim());
        return true;
    });
    return keyQuestion;
}

/* A menu under a button, which has an id: it may be drawn anew meanwhile.  Items are [label, action,
 * danger]. */
function openMenu(button, items) {
    closeMenu();
    const menu = h('div', {role: 'menu', class: 'menu', id: 'menu'}, items.map(([label, action, danger]) =>
        textButton(label, danger ? 'danger-text' : null, () => {
            closeMenu(true);
            action();
        }, {role: 'menuitem', tabindex: '-1'})));
    const place = button.getBoundingClientRect();
    document.body.append(menu);
    const size = menu.getBoundingClientRect();
    menu.style.left = Math.max(8, Math.min(place.right - size.width, innerWidth - size.width - 8)) + 'px';
    menu.style.top = (place.bottom + size.height + 8 > innerHeight ? Math.max(8, place.top - size.height - 4)
                                                                    : place.bottom + 4) + 'px';
    button.setAttribute('aria-expanded', 'true');
    menu.dataset.button = button.id;
    menu.addEventListener('keydown', e => {
        const all = [...menu.children], i = all.indexOf(document.activeElement);
        const to = {ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: -1}[e.key];
        if (to !== undefined)
            all[(to + all.length) % all.length].focus();
        else if (e.key === 'Escape' || e.key === 'Tab')
            closeMenu(true);
        else
            return;
        e.preventDefault();
        e.stopPropagation();
    });
    menu.firstChild.focus();
}

function closeMenu(back) {
    const menu = $('menu');
    if (!menu)
        return;
    const button = $(menu.dataset.button);
    menu.remove();
    if (button)
        button.setAttribute('aria-expanded', 'false');
    if (button && back)
        button.focus();
}

addEventListener('pointerdown', e => {
    if ($('menu') && !$('menu').contains(e.target))
        closeMenu();
});
