/* main.c - `lode VERB ...`: finds the verb, and says what there is when it cannot.
 *
 * Exit status: 0 done, 1 something went wrong, 2 the command line makes no sense.
 */
#include "args.h"
#include "load.h"
#include "out.h"
#include "verbs.h"

#include "lode/lode.h"

#include <stdio.h>
#include <string.h>

static const struct verb {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} verbs[] = {
#define VERB_ROW(name, help) {#name, help, verb_##name},
    LODE_VERB_LIST(VERB_ROW)
#undef VERB_ROW
        {NULL, NULL, NULL},
};

static void print_help(FILE *f) {
    fprintf(f,
            "%slode%s %s - runs language models on this machine\n\n"
            "Usage: lode VERB [arguments]\n\n",
            out_bold(f), out_plain(f), lode_version());
    for (const struct verb *v = verbs; v->name; v++)
        fprintf(f, "  %s%-11s%s %s\n", out_bold(f), v->name, out_plain(f), v->help);
    fprintf(f, "\n"
               "  lode VERB --help     what a verb does, its flags, examples\n"
               "  lode --help-debug    diagnostic switches of all verbs\n"
               "  lode --version\n\n"
               "Start with:  lode run models/demo.gguf\n");
}

static const struct verb *find_verb(const char *name) {
    for (const struct verb *v = verbs; v->name; v++)
        if (!strcmp(v->name, name))
            return v;
    return NULL;
}

static int unknown_verb(const char *word) {
    const char *names[sizeof verbs / sizeof *verbs];
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        names[i] = verbs[i].name;
    const char *near = args_nearest(word, names);
    fprintf(stderr, "lode: '%.80s' is not a verb", word);
    if (near)
        fprintf(stderr, "; did you mean '%s'?", near);
    fprintf(stderr, "\nTry: lode --help\n");
    return 2;
}

/* `lode help VERB` and `lode --help-debug` ask the verb itself. */
static int ask_verb(const struct verb *v, char *question) {
    char name[32];
    snprintf(name, sizeof name, "%s", v->name);
    return v->run(2, (char *[]){name, question, NULL});
}

static int dispatch(int argc, char **argv) {
    static char help[] = "--help", help_debug[] = "--help-debug";
    const char *word = argc > 1 ? argv[1] : NULL;
    if (!word) {
        print_help(stderr);
        return 2;
    }
    if (!strcmp(word, "--version") || !strcmp(word, "-V") || !strcmp(word, "version")) {
        printf("lode %s\n", lode_version());
        return 0;
    }
    if (!strcmp(word, help_debug)) {
        int status = 0;
        for (const struct verb *v = verbs; v->name && !status; v++)
            status = ask_verb(v, help_debug);
        return status;
    }
    if (!strcmp(word, help) || !strcmp(word, "-h") || !strcmp(word, "help")) {
        if (argc == 2) {
            print_help(stdout);
            return 0;
        }
        const struct verb *v = find_verb(argv[2]);
        return v ? ask_verb(v, help) : unknown_verb(argv[2]);
    }
    for (int i = 1; i < argc; i++) /* llama.cpp's; no model is needed */
        if (!strcmp(argv[i], "--list-devices"))
            return load_list_devices();
    const struct verb *v = find_verb(word);
    return v ? v->run(argc - 1, argv + 1) : unknown_verb(word);
}

int main(int argc, char **argv) {
    out_init();
    lode_install_sigbus_handler(NULL); /* a model file that shrinks is an error, not a crash */
    const int status = dispatch(argc, argv);
    lode_memory_watch(false, NULL);
    return out_finish(status);
}
