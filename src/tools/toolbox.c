/* toolbox.c - see toolbox.h. */
#include "toolbox.h"

#include "input.h"
#include "interrupt.h"
#include "out.h"
#include "progress.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 32 << 10 /* bytes of a result */, COMMAND_SECONDS = 120, MAX_WORDS = 64 };

struct toolbox {
    json_t *list;    /* owned: what a request names */
    json_t *own;     /* owned: name -> command (a list of words); of a file */
    json_t *allowed; /* owned: names that need not be asked for any more */
    bool yes;
};

static const char builtin[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"read_file\",\"description\":\"Reads a text file.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},"
    "\"first_line\":{\"type\":\"integer\",\"description\":\"from 1; left out: the beginning\"}},"
    "\"required\":[\"path\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"list_directory\",\"description\":\"Lists the names in a "
    "directory; those of directories end in /.\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"path\":{\"type\":\"string\"}},\"required\":[\"path\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"run_command\",\"description\":\"Runs a command by /bin/sh "
    "and returns its exit status and what it printed.\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"command\":{\"type\":\"string\"}},\"required\":[\"command\"]}}}]";

/* ---- results ---- */

struct text { /* grows up to MOST bytes; what comes then is counted */
    char *data;
    size_t len, lost;
};

static void add(struct text *t, const char *data, size_t len) {
    const size_t room = MOST - t->len, n = len < room ? len : room;
    if (!t->data)
        t->data = malloc(MOST + 200);
    if (!t->data)
        return;
    memcpy(t->data + t->len, data, n);
    t->len += n;
    t->lost += len - n;
}

static char *finish(struct text *t, const char *empty) {
    if (!t->data)
        return strdup(empty);
    if (t->lost)
        t->len += (size_t)snprintf(t->data + t->len, 190, "\n[cut here: %zu more bytes]", t->lost);
    t->data[t->len] = 0;
    return t->data;
}

static char *complaint(const char *format, const char *what, const char *why) {
    char *text;
    return asprintf(&text, format, what, why) < 0 ? NULL : text;
}

/* ---- the tools ---- */

static char *read_file(const json_t *args) {
    const char *path = json_string_value(json_object_get(args, "path"));
    const json_int_t first = json_integer_value(json_object_get(args, "first_line"));
    struct text t = {0};
    char buffer[8192];
    struct stat st;
    if (!path)
        return strdup("error: \"path\" is missing");
    FILE *f = fopen(path, "re");
    if (!f || fstat(fileno(f), &st) || !S_ISREG(st.st_mode)) {
        char *text = complaint("error: %s: %s", path, f ? "is no regular file" : strerror(errno));
        if (f)
            fclose(f);
        return text;
    }
    json_int_t line = 1;
    while (fgets(buffer, sizeof buffer, f)) {
        const size_t n = strlen(buffer);
        if (line >= first)
            add(&t, buffer, n);
        line += n > 0 && buffer[n - 1] == '\n';
    }
    fclose(f);
    return finish(&t, "(empty)");
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int visible(const struct dirent *e) {
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static char *list_directory(const json_t *args) {
    const char *path = json_string_value(json_object_get(args, "path"));
    struct dirent **names;
    struct text t = {0};
    if (!path)
        return strdup("error: \"path\" is missing");
    const int n = scandir(path, &names, visible, by_name);
    if (n < 0)
        return complaint("error: %s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        add(&t, names[i]->d_name, strlen(names[i]->d_name));
        add(&t, names[i]->d_type == DT_DIR ? "/\n" : "\n", names[i]->d_type == DT_DIR ? 2 : 1);
        free(names[i]);
    }
    free(names);
    return finish(&t, "(empty)");
}

/* What the child prints until it ends, is interrupted, or takes too long. */
static void collect(struct text *t, int fd, pid_t child) {
    const double end = clock_now() + COMMAND_SECONDS;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char buffer[4096];
    for (;;) {
        const bool late = clock_now() > end;
        if (late || interrupt_seen()) {
            kill(-child, SIGKILL);
            const char *why = late ? "\n[killed: it took too long]" : "\n[killed by Ctrl+C]";
            add(t, why, strlen(why));
            return;
        }
        if (poll(&p, 1, 200) <= 0)
            continue;
        const ssize_t n = read(fd, buffer, sizeof buffer);
        if (n == 0 || (n < 0 && errno != EINTR))
            return;
        if (n > 0)
            add(t, buffer, (size_t)n);
    }
}

/* words: NULL-terminated; input: what it reads, or NULL. */
static char *run(char *const *words, const char *input) {
    extern char **environ;
    int out[2], in[2] = {-1, -1};
    pid_t child;
    struct text t = {0};
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none;
    if (pipe2(out, O_CLOEXEC) || (input && pipe2(in, O_CLOEXEC)))
        return complaint("error: %s: %s", words[0], strerror(errno));
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, out[1], 1);
    posix_spawn_file_actions_adddup2(&fa, out[1], 2);
    if (input)
        posix_spawn_file_actions_adddup2(&fa, in[0], 0);
    else
        posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawnattr_init(&attr);
    sigfillset(&none); /* our own handling of signals is not the child's */
    posix_spawnattr_setsigdefault(&attr, &none);
    posix_spawnattr_setpgroup(&attr, 0); /* so that all of it can be killed */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    const int rc = posix_spawnp(&child, words[0], &fa, &attr, words, environ);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    close(out[1]);
    if (input) {
        close(in[0]);
        if (rc == 0) { /* arguments are smaller than a pipe, or the tool reads them */
            const ssize_t n = write(in[1], input, strlen(input));
            (void)n;
        }
        close(in[1]);
    }
    if (rc) {
        close(out[0]);
        return complaint("error: %s: %s", words[0], strerror(rc));
    }
    collect(&t, out[0], child);
    close(out[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    char end[64];
    snprintf(end, sizeof end, "%s[exit status %d]", t.len && t.data[t.len - 1] != '\n' ? "\n" : "",
             WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    if (t.len + strlen(end) > MOST)
        t.len = MOST - strlen(end);
    add(&t, end, strlen(end));
    return finish(&t, "");
}

static char *run_command(const json_t *args) {
    const char *command = json_string_value(json_object_get(args, "command"));
    if (!command)
        return strdup("error: \"command\" is missing");
    char *const words[] = {"/bin/sh", "-c", (char *)command, NULL};
    return run(words, NULL);
}

static char *run_own(const json_t *command, const char *arguments) {
    char *words[MAX_WORDS + 1] = {0};
    for (size_t i = 0; i < json_array_size(command) && i < MAX_WORDS; i++)
        words[i] = (char *)json_string_value(json_array_get(command, i));
    return run(words, arguments);
}

/* ---- asking ---- */

static bool ask(struct toolbox *t, const char *name, const char *arguments, struct lode_error *err,
                int *rc) {
    char reply[32] = "";
    if (t->yes || json_object_get(t->allowed, name)) {
        fprintf(stderr, "%s%s(%s)%s\n", out_dim(stderr), name, arguments, out_plain(stderr));
        return true;
    }
    FILE *tty = fopen("/dev/tty", "r+e");
    if (!tty)
        return false;
    fprintf(tty, "%s%s%s(%s)\nRun it? [y]es, [a]lways %s, [N]o, [q]uit: ", out_bold(tty), name,
            out_plain(tty), arguments, name);
    fflush(tty);
    const bool got = fgets(reply, sizeof reply, tty);
    fclose(tty);
    if (got && (*reply == 'a' || *reply == 'A'))
        json_object_set_new(t->allowed, name, json_true());
    if (!got || *reply == 'q' || *reply == 'Q' || interrupt_seen())
        *rc = tool_fail(err, LODE_ERR_CANCELLED, name, "not run");
    return got && strchr("yYaA", *reply) && *reply;
}

int toolbox_call(struct toolbox *t, const char *name, const char *arguments, char **result,
                 struct lode_error *err) {
    static const struct {
        const char *name;
        char *(*run)(const json_t *args);
    } tools[] = {{"read_file", read_file}, {"list_directory", list_directory}, {"run_command", run_command}};
    const json_t *own = json_object_get(t->own, name);
    json_t *args = json_loads(arguments, 0, NULL);
    int rc = 0;
    *result = NULL;
    size_t i = 0;
    while (i < sizeof tools / sizeof *tools && strcmp(tools[i].name, name) != 0)
        i++;
    if (!own && (t->own || i == sizeof tools / sizeof *tools))
        *result = complaint("error: there is no tool %s%s", name, "");
    else if (!json_is_object(args))
        *result = strdup("error: the arguments are no JSON object");
    else if (!ask(t, name, arguments, err, &rc))
        *result = rc < 0 ? NULL
                         : strdup("The user did not allow this call. Go on without it, or ask the user.");
    else
        *result = own ? run_own(own, arguments) : tools[i].run(args);
    json_decref(args);
    if (rc == 0 && !*result)
        rc = tool_fail(err, LODE_ERR_NOMEM, name, "no memory for its result");
    return rc;
}

static void show(const char *result) {
    const char *end = result;
    for (int lines = 0; *end && lines < 10; lines++) {
        end += strcspn(end, "\n");
        end += *end == '\n';
    }
    fprintf(stderr, "%s%.*s%s%s\n", out_dim(stderr), (int)(end - result), result, *end ? "..." : "",
            out_plain(stderr));
}

int toolbox_answer(struct toolbox *t, json_t *messages, const json_t *calls, struct lode_error *err) {
    size_t i;
    json_t *call;
    json_array_foreach(calls, i, call) {
        const json_t *function = json_object_get(call, "function"), *args = json_object_get(function, "arguments");
        const char *name = json_string_value(json_object_get(function, "name"));
        const char *id = json_string_value(json_object_get(call, "id"));
        char *text = json_is_string(args) ? strdup(json_string_value(args)) : json_dumps(args, JSON_COMPACT);
        char *result = NULL;
        int rc = toolbox_call(t, name ? name : "", text ? text : "{}", &result, err);
        free(text);
        if (rc == 0) {
            show(result);
            /* what is no UTF-8 can't be JSON */
            json_t *content = json_string(result);
            json_t *m = json_pack("{s:s, s:s, s:s, s:o}", "role", "tool", "tool_call_id", id ? id : "", "name",
                                  name ? name : "", "content",
                                  content ? content : json_string("error: the result is no UTF-8 text"));
            if (!m || json_array_append_new(messages, m))
                rc = tool_fail(err, LODE_ERR_NOMEM, "tools", "no memory for a result");
        }
        free(result);
        if (rc < 0)
            return rc;
    }
    return (int)json_array_size(calls);
}

/* ---- opening ---- */

static int read_tools(struct toolbox *t, const char *path, struct lode_error *err) {
    char *text;
    size_t size, i;
    json_error_t why;
    json_t *tool;
    int rc = input_read(path, 1 << 20, &text, &size, err);
    if (rc < 0)
        return rc;
    t->list = json_loadb(text, size, 0, &why);
    free(text);
    if (!json_is_array(t->list))
        return tool_fail(err, LODE_ERR_FORMAT, path, "a JSON list of tools expected: line %d: %s", why.line,
                         why.text);
    t->own = json_object();
    json_array_foreach(t->list, i, tool) {
        const char *name = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        json_t *command = json_object_get(tool, "command"), *word;
        size_t k, bad = !name || !json_array_size(command) || json_array_size(command) > MAX_WORDS;
        json_array_foreach(command, k, word) bad += !json_is_string(word);
        if (bad)
            return tool_fail(err, LODE_ERR_FORMAT, path,
                             "tool %zu: {\"type\": \"function\", \"function\": {\"name\": ...}, \"command\": "
                             "[\"program\", ...]} expected",
                             i + 1);
        json_object_set(t->own, name, command);
        json_object_del(tool, "command");
    }
    return 0;
}

int toolbox_open(struct toolbox **out, const char *source, bool yes, struct lode_error *err) {
    struct toolbox *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return tool_fail(err, LODE_ERR_NOMEM, "tools", "no memory for the tools");
    t->yes = yes;
    t->allowed = json_object();
    int rc = 0;
    if (!strcmp(source, "builtin"))
        t->list = json_loads(builtin, 0, NULL);
    else
        rc = read_tools(t, source, err);
    if (rc < 0)
        toolbox_close(t);
    else
        *out = t;
    return rc;
}

void toolbox_close(struct toolbox *t) {
    if (!t)
        return;
    json_decref(t->list);
    json_decref(t->own);
    json_decref(t->allowed);
    free(t);
}

json_t *toolbox_list(const struct toolbox *t) { return t->list; }
