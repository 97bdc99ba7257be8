/* verbs.h - the verbs of the program: one list, one file each. */
#ifndef LODE_TOOLS_VERBS_H
#define LODE_TOOLS_VERBS_H

/* name, what it does.  verb_NAME(argc, argv) returns the exit status; argv[0] is the verb. */
#define LODE_VERB_LIST(X)                                                                          \
    X(run, "chat with a model, or answer one prompt")                                              \
    X(serve, "models over HTTP: a web page; OpenAI's, Anthropic's, Ollama's APIs")                                                 \
    X(batch, "answers a file of requests, without a server")                                       \
    X(launch, "settings of coding agents, so that they use a lode server")                         \
    X(bench, "tokens/s of prompts and answers, and the share of the memory bandwidth")             \
    X(logits, "what a model says after given token ids, as numbers")                               \
    X(embed, "texts as vectors, and how well documents answer a query")                            \
    X(perplexity, "how well a model predicts a text; how far two models are apart")                \
    X(tokenize, "shows a text as a model's tokens")                                                \
    X(detokenize, "turns token ids back into text")                                                \
    X(template, "shows the prompt that a chat template makes of messages")                         \
    X(schema, "says whether a JSON Schema can be enforced, and what it accepts")                   \
    X(plan, "what of a model would live where, and how fast it would be")                          \
    X(doctor, "what this machine has, and what of it lode uses")                                   \
    X(inspect, "what a model file holds: metadata, tensors, types, sizes")                         \
    X(trace, "which experts tokens go to, and what caches make of it")                             \
    X(convert, "makes a GGUF file of any model, in any number format")                             \
    X(pack, "lays out a model so that its experts can be read one by one")

#define LODE_VERB_DECLARE(name, help) int verb_##name(int argc, char **argv);
LODE_VERB_LIST(LODE_VERB_DECLARE)
#undef LODE_VERB_DECLARE

#endif
