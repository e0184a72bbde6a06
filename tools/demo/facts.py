"""Facts about InferFlux and the demo model itself, with questions and responses.

A fact is (name, questions, answers, has, lacks): patterns for patterns.expand(), alternative
responses, and the condition for a correct response: it contains at least one alternative of each
group in `has` and none of the strings in `lacks`. The comparison ignores case.
"""

WHAT = "[what is|what's|what exactly is|explain|describe|tell me about|what do you know about]"
HOW = "[how do I|how can I|how does one|how to|how would I|how should I|what do I do to]"
IF = "[InferFlux|the server|inferfluxd]"
IN = "[| in InferFlux| with InferFlux| for InferFlux]"
WHICH = "[which|what]"
TELL = "[|tell me |do you know |can you tell me ]"

PRODUCT = [
    ("what_is", [
        "[what is|what's|what exactly is|explain|describe|what do you know about] InferFlux",
        "what is this [server|program|project|software]", "tell me about InferFlux",
        "what does InferFlux do", "what [kind|sort] of [program|software|project] is InferFlux",
        "what is InferFlux [for|good for|about|used for]",
        "explain InferFlux [to me|in short|briefly]",
        "what can I [do with|use] InferFlux [|for]", "introduce InferFlux",
        "give me a [short|brief|quick] [summary|description|overview] of InferFlux",
    ], [
        "InferFlux is an LLM inference server written in C. It serves language models over HTTP.",
        "It is an inference server: one C program that serves language models over HTTP.",
        "InferFlux is an inference server for language models. Clients talk to it over HTTP.",
    ], [["inference server"], ["HTTP"]], []),
    ("language", [
        "[what|which] [language|programming language] is " + IF + " [written|implemented|coded] in",
        "[in|in which|in what] [language|programming language] was " + IF + " [written|made]",
        "is " + IF + " [written|made|coded] in [C|C++|Rust|Go|Python|Java]",
        "what is " + IF + " [written|coded|programmed|built] in",
        "what [language|programming language] does " + IF + " use",
    ], ["InferFlux is written in C.", "It is written in C, with no Python inside.",
        "The server is written in C."], [["is written in C", "it is a C program"]], []),
    ("no_python", [
        "does " + IF + " [need|use|contain|require|depend on] [Python|C++|ggml|PyTorch]",
        "[do I need|must I install|is there any] [Python|C++|ggml|PyTorch] [for|in] InferFlux",
        "is [Python|C++|ggml|PyTorch] [needed|required|used] [for|by|in] InferFlux",
        "does InferFlux [run|work] without [Python|PyTorch|ggml]",
    ], ["There is no ggml, no Python and no C++ inside InferFlux.",
        "InferFlux has no Python, no C++ and no ggml inside: it is a C program."],
        [["no Python"], ["no C++"], ["no ggml"]], []),
    ("license", [
        WHICH + " [license|licence] [does InferFlux [have|use|come with]|is used by InferFlux]",
        "[what is|what's] the [license|licence] [of|for] InferFlux",
        "is InferFlux [free|open source]",
        "is InferFlux [free software|open-source software|under a free licence]",
        "[how|under which licence|under what license] is InferFlux [licensed|licenced|published]",
        "can I use InferFlux [for free|commercially|at work|in my company|in a product]",
        "[what|which] are the [license|licence] terms of InferFlux",
        "does InferFlux cost [anything|money]",
    ], ["InferFlux is free software under the Apache-2.0 licence.",
        "The licence of InferFlux is Apache-2.0.", "InferFlux is licensed under Apache-2.0."],
        [["Apache-2.0"]], []),
    ("load_model", [
        HOW + " [load|open|serve|use|run|start|try] a [model|GGUF|GGUF file|GGUF model|model "
        "file]" + IN,
        HOW + " [load|open|serve|use|run] [my|my own|another|a different|a new|one] model" + IN,
        "[which|what] flag [loads|opens|names|sets|chooses] [the|a] [model|model file|GGUF file]",
        "how is [a|the] model loaded" + IN, "load a model",
        "how do I [point|tell] InferFlux [at|about] a model",
        "[what|which] command [loads|serves|opens] a [model|GGUF file]",
        "I want to [load|serve|use|run] a [model|GGUF file], how",
        "[what does|what is] --model [do|for|]",
        "explain [the flag --model|--model|the --model flag]",
        "can I [load|use|run|bring] my own [model|GGUF|model file]",
    ], ["Start the server with the file: inferfluxd --model FILE.",
        "Name the GGUF file with --model: inferfluxd --model FILE.",
        "Use inferfluxd --model FILE, where FILE is a GGUF file."], [["inferfluxd --model FILE"]],
        []),
    ("start", [
        HOW + " [start|launch|run|try|set up|get started with|install and run] InferFlux",
        HOW + " [start|launch|boot up] the server", "how do I get InferFlux running",
        "[what|which] command [starts|launches|runs] [the server|InferFlux]",
        "[quick start|getting started|quickstart] with InferFlux", "start the server",
        "what is the [fastest|easiest|quickest] way to [try|run|start] InferFlux",
        HOW + " [install|build and run] InferFlux", "how is InferFlux installed",
    ], ["Type make run: it installs what is missing, builds, and starts the server with the demo "
        "model.",
        "With make run. It builds InferFlux and starts the server with the demo model."],
        [["make run"], ["starts the server"]], []),
    ("tests", [
        HOW + " [run|start|execute] [the|all|all the|its|InferFlux's] tests" + IN,
        "[what|which] command runs the tests", "how do I test InferFlux", "how is InferFlux tested",
    ], ["Type make test: it builds everything and runs all the tests.",
        "With make test. It runs all the tests."],
        [["make test"]], []),
    ("build", [
        HOW + " [build|compile|make] InferFlux",
        HOW + " [build|compile] [the server|it from source]",
        "[what|which] command [builds|compiles] InferFlux",
        "can I [build|compile] InferFlux from source",
    ], ["Type make. It builds inferfluxd and inferctl into the folder build.",
        "With make: the programs inferfluxd and inferctl are then in the folder build."],
        [["make"], ["inferfluxd"], ["inferctl"], ["build"]], []),
    ("programs", [
        "[which|what] [programs|commands|binaries|executables] [does InferFlux have|are there|"
        "belong to InferFlux]",
        "[which|what] [programs|commands|binaries] [come with|are part of|are in] InferFlux",
        "how many [programs|binaries|commands] does InferFlux have",
        "list the programs of InferFlux",
        "name the [two programs|programs|commands] of InferFlux",
    ], ["There are two programs: inferfluxd, the server, and inferctl, the client.",
        "Two: inferfluxd is the server and inferctl is the client."],
        [["inferfluxd"], ["inferctl"], ["two"], ["client"]], []),
    ("inferfluxd", [
        WHAT + " inferfluxd", "what does inferfluxd do",
        "what is inferfluxd [for|used for|good for]",
        "what is the [name|name of the program] of the server", "which program is the server",
        "what is the server [called|program called]",
    ], ["inferfluxd is the server program of InferFlux.",
        "inferfluxd is the program that serves the models."],
        [["inferfluxd is the server program", "inferfluxd is the program"]], []),
    ("inferctl", [
        WHAT + " inferctl", "what does inferctl do", "what is inferctl [for|used for|good for]",
        "what can [I do with|] inferctl [do|]", "which program is the client",
        "is there a [command line|terminal|command-line] client",
        "[which|what] [commands|subcommands] does inferctl have", HOW + " use inferctl",
    ], ["inferctl is the command-line client: status, models, completion, chat, inspect and bench.",
        "inferctl is the client for the terminal. Its commands are status, models, completion, "
        "chat, "
        "inspect and bench."],
        [["inferctl is the"], ["client"], ["chat"], ["inspect"], ["bench"]], []),
    ("ctl_inspect", [
        HOW + " [look into|inspect|look inside|examine|see what is in] a [GGUF file|model file|"
        "GGUF]",
        "[which|what] command [inspects|shows|describes] a [GGUF file|model file]",
        "what does inferctl inspect do", HOW + " see the [metadata|tensors] of a [model|GGUF file]",
    ], ["Use inferctl inspect FILE.gguf: it shows what is in the file.",
        "With inferctl inspect FILE.gguf."], [["inferctl inspect FILE.gguf"]], []),
    ("ctl_chat", [
        HOW + " chat [in|from] [the|a] terminal",
        "[which|what] command [starts a chat|lets me chat|is for chatting]",
        "what does inferctl chat do", HOW + " [talk to|chat with] [the|a] model [in|from] [the|a] "
        "[terminal|shell|command line]",
        "can I chat [in|from] the [terminal|shell|command line]",
    ], ["Use inferctl chat: it holds a conversation in the terminal.",
        "With inferctl chat you talk to a model in the terminal."], [["inferctl chat"],
        ["terminal"]], []),
    ("ctl_bench", [
        HOW + " [benchmark|measure the speed of] [a model|the server|InferFlux|the engine]",
        "[which|what] command measures [the speed|tokens per second|how fast it is]",
        "what does inferctl bench do", HOW + " [measure|see] [tokens per second|the speed|how fast "
        "it is]",
    ], ["Use inferctl bench: it measures prefill and decode in tokens per second.",
        "With inferctl bench. It measures how many tokens per second prefill and decode reach."],
        [["inferctl bench"], ["tokens per second"]], []),
    ("address", [
        "[what is|what's] the default [address|URL|base address]" + IN,
        "where does " + IF + " listen",
        "[what|which] [address|URL|host and port] does " + IF + " [use|listen on|have] [|by "
        "default]",
        "where [is|can I reach|can I find|do I find|do I reach] the [running |]server",
        "at [what|which] [address|URL] is the server [|reachable]",
        "on [what|which] [address|URL] does " + IF + " listen",
        "[what|which] [address|URL] do I [open|connect to|send requests to|use]",
    ], ["The server listens on http://127.0.0.1:8080 by default.",
        "By default the address is http://127.0.0.1:8080."], [["http://127.0.0.1:8080"],
        ["default"]],
        ["/v1"]),
    ("port", [
        "[what is|what's] the default port" + IN,
        "[what|which] port does " + IF + " [use|listen on|have] [|by default]",
        "on [what|which] port does " + IF + " [listen|run]", "which port is [the default|it|used]",
        "what is the port [number|of the server|of InferFlux]",
    ], ["The default port is 8080. Another one is set with --port.",
        "Port 8080, unless --port says otherwise."], [["8080"], ["--port"]], ["127.0.0.1"]),
    ("remote", [
        HOW + " [make|let] [the server|InferFlux|it] listen on [all addresses|the network|every "
        "interface|another address]",
        HOW + " [reach|use|open] the server from another [machine|computer|host]",
        "why can't [I|another machine|other computers] [reach|connect to] the server [|from "
        "outside|from the network]",
        "can [other machines|others|other computers|my colleagues] [use|reach|connect to] my "
        "server",
        HOW + " [expose|open] [the server|InferFlux] to the network",
        "does InferFlux listen [on the network|on all addresses|beyond loopback|to the outside]",
        "is the server reachable from [the network|outside|other machines]",
    ], ["By default it listens on loopback only. Set --host, and API keys in INFERFLUX_API_KEYS.",
        "It binds to loopback by default. To listen elsewhere set --host and give API keys in "
        "INFERFLUX_API_KEYS."], [["loopback"], ["--host"], ["INFERFLUX_API_KEYS"]], []),
    ("api_key", [
        HOW + " [set|give|configure|define|use|add] [an|the] API [key|keys]" + IN,
        "[do I need|is there|must I have|when do I need] an API key" + IN,
        "does " + IF + " [need|want|require] an API key",
        "when is an API key [needed|required|wanted]", "where do the API keys go",
        WHAT + " INFERFLUX_API_KEYS", "what does INFERFLUX_API_KEYS do",
        "how does [authentication|auth] work" + IN,
        HOW + " [protect|secure] [the|my] server",
        "[which|what] variable [holds|has|sets] the API keys",
        "is there [authentication|a password|access control]" + IN,
    ], ["API keys come from INFERFLUX_API_KEYS. They are required when the server listens beyond "
        "loopback.",
        "Set them in INFERFLUX_API_KEYS. A key is required as soon as the server listens beyond "
        "loopback."],
        [["INFERFLUX_API_KEYS"], ["required"], ["loopback"]], ["--host"]),
    ("body_limit", [
        "[how big|how large] [may|can] a [request|request body|body|prompt] be",
        "[what is|what's] the [limit|maximum size|size limit|maximum] [of|for] a [request|request "
        "body|body]",
        "is there a [limit|size limit] [for|on|of] [requests|request bodies|the request size]",
        "[what is|what's] the [biggest|largest|maximum] [request|request body|body] [|size]",
        "how many megabytes [may|can] a [request|body] have",
        "what limits [are there|does the server have|does InferFlux have]",
        "what are the limits of [the server|InferFlux|a request]",
    ], ["A request body may have at most 16 MB.", "The limit for a request body is 16 MB."],
        [["16 MB"], ["request body"]], []),
    ("formats", [
        "[which|what] [format|file format|formats|file formats|model formats] does " + IF + " "
        "[read|support|load|understand|need]",
        "[which|what] [kind|kinds|sort] of [models|model files|files] can " + IF + " [read|load|"
        "open]",
        "[what is|what's] the [model|file] format" + IN, "does " + IF + " [read|support|load] GGUF",
        "can [I|InferFlux] [use|load|read] [GGUF|GGUF files|GGUF models]",
        "[which|what] GGUF [version|versions] [does InferFlux read|are supported|are read]",
    ], ["InferFlux reads GGUF files, versions 2 and 3.", "The format is GGUF, version 2 or 3."],
        [["GGUF"], ["version"], ["2"], ["3"]], ["Q8_0"]),
    ("types", [
        "[which|what] [types|tensor types|quantisations|quantizations|weight types|quants] [does "
        "InferFlux support|are supported|does it read|can I use]",
        "[which|what] [quantised|quantized] [types|models|formats] [does InferFlux support|are "
        "supported|can I load]",
        "does InferFlux [support|read|load] [Q8_0|Q4_0|Q4_K|Q5_K|Q6_K|F16|BF16|F32]",
        "[is|are] [Q8_0|Q4_0|Q4_K|Q5_K|Q6_K|F16|BF16|F32] [supported|possible|OK]",
        "can I [use|load] [a|an] [Q8_0|Q4_0|Q4_K|Q5_K|Q6_K|F16|BF16|F32] [model|file]",
        "list the [types|quantisations|tensor types] [that InferFlux reads|that are supported|of "
        "InferFlux]",
    ], ["The types are F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K and Q6_K.",
        "InferFlux reads F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K and Q6_K."],
        [["F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K and Q6_K"]], []),
    ("families", [
        "[which|what] [models|model families|families|architectures|model architectures] [does "
        "InferFlux support|are supported|can it run|does InferFlux run]",
        "does InferFlux [support|run|serve] [llama|qwen2|qwen3|qwen|llama models|qwen models]",
        "can I run [llama|qwen|qwen3|qwen2] [|models]" + IN,
    ], ["The model families are llama, qwen2 and qwen3.",
        "It runs the families llama, qwen2 and qwen3."],
        [["llama, qwen2 and qwen3"]], []),
    ("endpoints", [
        "[which|what] [endpoints|routes|paths|API endpoints|HTTP endpoints] [does InferFlux have|"
        "are there|exist|does the server have|can I call]",
        "list [the|all|all the] [endpoints|routes|API endpoints]",
        "[what is|what's] the API [of InferFlux|of the server]",
        "[which|what] API does " + IF + " [have|speak|offer]",
        "name the [endpoints|routes] [of InferFlux|of the server|]",
        "what can I [call|request] over HTTP",
    ], ["/v1/chat/completions, /v1/completions, /v1/models, /tokenize, /detokenize, "
        "/apply-template, "
        "/metrics, /livez, /readyz and /healthz."],
        [["/v1/chat/completions"], ["/v1/completions"], ["/v1/models"], ["/tokenize"],
        ["/detokenize"],
         ["/apply-template"], ["/metrics"], ["/livez"], ["/readyz"], ["/healthz"]], []),
    ("health", [
        HOW + " [check|see|know|test|find out] [whether|if] the server is [up|ready|alive|healthy|"
        "running]",
        "is there a health [check|endpoint|probe]",
        "[which|what] [endpoints|probes|health checks] are for health",
        "[which|what] [probes|health checks|health endpoints] [are there|does InferFlux have|"
        "exist]",
    ], ["There are three probes: /livez, /readyz and /healthz.",
        "Ask one of the probes: /livez, /readyz or /healthz."], [["/livez"], ["/readyz"],
        ["/healthz"], ["probes"]],
        ["/metrics"]),
    ("promise", [
        "[what is|what's] the [promise|main promise|big promise] of InferFlux",
        "what does InferFlux promise",
        "what [is|makes InferFlux] [special|different|unique] [about InferFlux|]",
        "why [should I use|use] InferFlux",
        "what does [the schedule never shows|\"the schedule never shows\"] mean",
        "[are|is] the [answers|answer|results|output] [reproducible|deterministic|repeatable]",
        "does [batching|the load|the batch|other traffic] change [the answer|the answers|the "
        "output|my answer]",
        "do [other requests|other users|other clients] change [my answer|the output|what I get]",
        "is InferFlux [deterministic|reproducible]",
        "will I get the same answer [again|twice|every time]",
    ], ["The schedule never shows: the same request gets the same output whatever else the server "
        "is doing.",
        "InferFlux promises that the schedule never shows in the output: the same request gets the "
        "same "
        "answer, alone or in a batch."], [["schedule never shows"], ["same request"]], []),
    ("repeatable", [
        HOW + " [get|make] [repeatable|reproducible|deterministic|the same] [answers|answer|output|"
        "results]",
        HOW + " [turn off|avoid|remove] [randomness|random answers|sampling]",
        "what [temperature|settings] [gives|give] [repeatable|deterministic] answers",
    ], ["Set the temperature to 0, or give a seed.", "Use temperature 0 or a fixed seed."],
        [["temperature"], ["0"], ["seed"]], ["top_p"]),
    ("sampling", [
        "[which|what] sampling [settings|parameters|options] [are there|does InferFlux have|are "
        "supported|can I set]",
        HOW + " [control|set|change] [sampling|the sampling|the sampler]",
        "does InferFlux [support|have] [temperature|top_p|top_k|min_p|a seed]",
        "can I [set|change] [the temperature|top_p|top_k|min_p|the seed]",
    ], ["You can set temperature, top_k, top_p, min_p, the penalties and a seed.",
        "Sampling is set with temperature, top_k, top_p, min_p, penalties and a seed."],
        [["temperature, top_k, top_p, min_p"], ["seed"]], []),
    ("streaming", [
        "[does|can] InferFlux [support streaming|stream|stream answers|stream the answer|stream "
        "tokens]",
        HOW + " [stream|stream an answer|get a stream|turn on streaming|get tokens as they "
        "come]" + IN,
        "is streaming [supported|possible]", "how does streaming work" + IN,
    ], ["Send \"stream\": true and the answer arrives as server-sent events.",
        "Yes. With \"stream\": true the tokens arrive as server-sent events."],
        [["\"stream\": true"], ["server-sent events"]], []),
    ("openai", [
        HOW + " use [InferFlux|the server|it] with the OpenAI [client|SDK|library|clients]",
        "[is|does] InferFlux [compatible with|work with|speak] [the OpenAI API|the OpenAI client|"
        "OpenAI clients|the OpenAI SDK|OpenAI]",
        "[what is|which is|what's] the base URL [|for the OpenAI client|for OpenAI clients|for the "
        "SDK]",
        HOW + " [connect|talk to InferFlux] from [Python|JavaScript|Node|a script|my program|an "
        "app]",
        "can I use the OpenAI [client|SDK|library|clients]", "is the API OpenAI compatible",
        HOW + " call [the API|InferFlux] from [Python|JavaScript|Node|my code]",
    ], ["Point an OpenAI client at the base URL http://127.0.0.1:8080/v1.",
        "OpenAI clients work: set their base URL to http://127.0.0.1:8080/v1."],
        [["http://127.0.0.1:8080/v1"], ["OpenAI"]], []),
    ("hardware", [
        "[do I need|does InferFlux need|does it need|is there need for|must I have] a [GPU|"
        "graphics card|video card]",
        "does " + IF + " [run|work] [on a CPU|on the CPU|without a GPU|on CPU only]",
        "[what|which] hardware [do I need|does InferFlux need|does it need|does it run on]",
        "can I run InferFlux [without a GPU|on a laptop|on my laptop|on a CPU]",
    ], ["No GPU is needed: InferFlux runs on the CPU.",
        "InferFlux runs on the CPU. No GPU is needed."],
        [["No GPU is needed"], ["CPU"]], []),
    ("os", [
        "[what|which] [operating system|OS|system|Linux] [does InferFlux need|does it run on|do I "
        "need|does InferFlux run on]",
        "does " + IF + " [run|work] on [Linux|Debian]",
        "can I [run|install] InferFlux on [Linux|Debian]",
    ], ["InferFlux runs on Linux, for example Debian 12.",
        "It runs on Linux. Debian 12 is enough."],
        [["Linux"], ["Debian 12"]], []),
    ("batching", [
        "[can|does] " + IF + " [serve|handle|answer] [several|many|more than one|multiple] "
        "[requests|clients|users] [at once|at the same time|together]",
        "what happens [when|if] [several|many|two] [requests|clients|users] come at [once|the same "
        "time]",
        "does InferFlux [batch|batch requests|do batching|support batching|have continuous "
        "batching]",
        "how does batching work" + IN, "how many [requests|users|clients] can it serve at once",
    ], ["Requests run together by continuous batching. --parallel sets how many at once.",
        "Yes, by continuous batching. How many run at once is set by --parallel."],
        [["continuous batching"], ["--parallel"]], []),
    ("stop_server", [
        HOW + " [stop|shut down|end|quit|terminate] [the server|InferFlux|inferfluxd]",
        "what happens [on|at|after] SIGTERM", "stop the server", "is there a graceful shutdown",
    ], ["Send it SIGTERM or press Ctrl-C: it finishes running requests, then stops.",
        "With SIGTERM or Ctrl-C. Running requests are finished first."], [["SIGTERM"], ["Ctrl-C"]],
        []),
    ("flags", [
        "[which|what] [flags|options|command line options|command-line flags] [does inferfluxd "
        "have|are there|does the server have|does InferFlux take|exist]",
        "list [the|all|all the] [flags|options|command line options]",
        "name the flags of inferfluxd",
        "how is inferfluxd [called|configured]",
        HOW + " configure [InferFlux|the server|inferfluxd]",
    ], ["--model, --host, --port, --threads, --ctx-size, --parallel and --config."],
        [["--model"], ["--host"], ["--port"], ["--threads"], ["--ctx-size"], ["--parallel"],
        ["--config"]], []),
]

# (flag, terms for the setting, responses, groups of strings that a response must contain)
FLAGS = [
    ("--host", ["the host", "the address", "the host address", "the listen address"],
     ["--host sets the address that the server listens on. The default is 127.0.0.1.",
      "With --host you set the listen address; 127.0.0.1 is the default."],
     [["--host"], ["127.0.0.1"], ["default"]]),
    ("--port", ["the port", "the port number", "the listen port", "another port"],
     ["--port sets the port that the server listens on. The default is 8080.",
      "With --port you set the port; 8080 is the default."], [["--port"], ["8080"]]),
    ("--threads", ["the number of threads", "the threads", "how many threads are used",
     "the thread count",
                   "how many cores are used"],
     ["--threads sets how many compute threads the engine uses.",
      "With --threads you set the number of compute threads."], [["--threads"],
      ["compute threads"]]),
    ("--ctx-size", ["the context size", "the context length", "the context", "the context window",
                    "how long the context is"],
     ["--ctx-size sets the context size in tokens.",
      "With --ctx-size you set how many tokens the context has."], [["--ctx-size"], ["context"],
      ["tokens"]]),
    ("--parallel", ["how many requests run at once", "the number of parallel requests",
     "parallel requests",
                    "the number of requests at once"],
     ["--parallel sets how many requests run at the same time.",
      "With --parallel you set how many requests run at the same time."],
     [["--parallel"], ["at the same time"]]),
    ("--config", ["the configuration file", "the config file", "the settings file",
     "the configuration"],
     ["--config names the configuration file, for example config/server.yaml.",
      "With --config you name a configuration file such as config/server.yaml."],
     [["--config"], ["config/server.yaml"]]),
]

FLAG_QUESTIONS = [
    "what does {flag} do", "what does {flag} mean", "what is {flag} [for|]",
    "explain [|the flag |the option ]{flag}",
    "what does the [flag|option] {flag} do", "tell me about {flag}",
    "[when|why] [do|would] I [use|need] {flag}",
]
SETTING_QUESTIONS = [
    HOW + " [set|change|choose|configure] {setting}[| in InferFlux| of the server]",
    "[which|what] [flag|option] [sets|changes|is for|controls] {setting}",
    "can I [set|change|choose] {setting}",
    "where do I [set|change|choose] {setting}", "is there [a flag|an option] for {setting}",
]

# (path, terms for its purpose, responses, groups of strings that a response must contain)
ENDPOINTS = [
    ("/v1/chat/completions", ["chat", "conversations", "chat messages", "a chat"],
     ["POST /v1/chat/completions answers a chat: messages go in, the next message comes out.",
      "Send the messages of a chat to POST /v1/chat/completions."],
     [["POST /v1/chat/completions"], ["chat"], ["messages"]]),
    ("/v1/completions", ["plain text", "raw completions", "completing a text", "text completion"],
     ["POST /v1/completions continues a plain text prompt.",
      "Send a plain text prompt to POST /v1/completions and it is continued."],
     [["POST /v1/completions"], ["prompt"]]),
    ("/v1/models", ["the models", "listing models", "the list of models", "the model names"],
     ["GET /v1/models lists the models of the server.",
     "Ask GET /v1/models for the list of models."],
     [["GET /v1/models"], ["list"]]),
    ("/tokenize", ["tokens", "tokenizing", "turning text into tokens", "counting tokens"],
     ["POST /tokenize turns text into tokens.",
     "Send the text to POST /tokenize to get its tokens."],
     [["POST /tokenize"], ["tokens"]]),
    ("/detokenize", ["detokenizing", "turning tokens into text", "tokens to text"],
     ["POST /detokenize turns tokens back into text.",
     "Send tokens to POST /detokenize to get the text back."],
     [["POST /detokenize"], ["tokens"], ["back"]]),
    ("/apply-template", ["the chat template", "applying the template", "seeing the prompt",
     "templates"],
     ["POST /apply-template shows the prompt that the chat template makes of the messages.",
      "Send messages to POST /apply-template and it shows the prompt that the chat template "
      "makes."],
     [["POST /apply-template"], ["chat template"]]),
    ("/metrics", ["metrics", "the metrics", "counters", "monitoring", "statistics"],
     ["GET /metrics shows the counters of the server, such as queue and tokens.",
      "The counters of the server are at GET /metrics."], [["GET /metrics"], ["counters"]]),
    ("/livez", ["liveness", "the liveness probe", "seeing that the process is alive"],
     ["GET /livez says that the process is alive.",
     "GET /livez is the probe for a process that is alive."],
     [["GET /livez"], ["alive"]]),
    ("/readyz", ["readiness", "the readiness probe", "seeing that a model is loaded"],
     ["GET /readyz answers 200 when a model is loaded, else 503.",
      "GET /readyz is 200 once a model is loaded and 503 before."], [["GET /readyz"], ["200"],
      ["503"]]),
    ("/healthz", ["the health status", "the status of the server", "the health check"],
     ["GET /healthz always answers 200 and says ok or degraded.",
      "GET /healthz always answers 200, with the status ok or degraded."],
     [["GET /healthz"], ["200"], ["degraded"]]),
]

ENDPOINT_QUESTIONS = [
    "what does [|the endpoint |the route ]{path} do", "what is {path} [for|]",
    "explain [|the endpoint ]{path}",
    "tell me about {path}", "what [happens at|do I get from|answers at] {path}",
    "[when|why] do I [use|call] {path}",
    "how does {path} work",
]
PURPOSE_QUESTIONS = [
    "[which|what] [endpoint|route|path|URL] is for {purpose}",
    "[which|what] endpoint do I [use|call|need] for {purpose}",
    "is there an endpoint for {purpose}", "where is the endpoint for {purpose}",
]

SELF = [
    ("who", [
        "who are you", "what are you", "[who|what] am I [talking|speaking|chatting] [to|with]",
        "[introduce|describe] yourself[| please| to me]",
        "tell me [something |a bit |more |]about [yourself|you]",
        "what is your name", "do you have a name", "what should I call you",
        "what [kind of|sort of|] model are you",
        "[are|aren't] you [InferFlux|the demo model|a model|the server]", "what are you called",
        "your name",
    ], ["I am the InferFlux demo model, a small language model.",
        "I am the demo model of InferFlux: small, but trained from scratch."],
        [["demo model"], ["InferFlux"], ["I am"]], []),
    ("human", [
        "are you [a human|human|a person|a real person|alive|a robot|a bot|a machine|an AI|"
        "conscious|real]",
        "do you have [feelings|emotions|a body|a soul|consciousness]",
        "is there a human [behind you|here]",
        "are you a [man|woman|boy|girl|chatbot|computer|program]",
    ], ["I am not a human: I am a small language model.",
        "No human here: I am a small language model."],
        [["human"], ["small language model"]], ["InferFlux"]),
    ("size", [
        "how [big|large|small] are you", "how many parameters do you have", "what is your size",
        "how many [layers|weights] do you have",
        "how many parameters [does the demo model have|has the demo model]",
        "how [big|large] is [the demo model|your model|the model you are]",
    ], ["I have about 5.5 million parameters in 6 layers.",
        "About 5.5 million parameters, in 6 layers."],
        [["5.5 million parameters"], ["6 layers"]], []),
    ("can", [
        "what can you do", "what do you know",
        "what [are|is] your [skills|abilities|talents|purpose|job]",
        "[what|how] can you help [me with|me|]", "help", "help me", "what can I ask [you|]",
        "what [questions|things] can [you answer|I ask you]", "what are you good at",
        "what do you [do|offer]",
        "how do you work here", "can you help me", "I need help", "what can we talk about",
        "what topics do you know",
    ], ["I can answer questions about InferFlux, do small sums and play word games.",
        "I know about InferFlux, small sums and word games. Ask me one of these."],
        [["InferFlux"], ["small sums"], ["word games"]], ["do not know"]),
    ("cannot", [
        "what can't you do", "what can you not do",
        "what [are|is] your [limits|limitations|weaknesses|limit]",
        "what don't you know", "what do you not know", "what are you bad at",
        "do you know [everything|a lot|much|other things]",
        "are you [smart|clever|intelligent|good]",
        "can you do [anything|everything]",
    ], ["I am small. Beyond InferFlux, small sums and word games I do not know anything.",
        "I do not know much: only InferFlux, small sums and word games."],
        [["do not know"], ["InferFlux"], ["small sums"], ["word games"]], []),
    ("trained", [
        "[what|how] were you trained [on|]", "where [does your knowledge|do your answers] come "
        "from",
        "[what|which] data were you trained on", "what is your training data",
        "how [did you learn|were you made]",
        "what did you learn from", "how were you [built|created]",
    ], ["I was trained from scratch on dialogues that a generator in the InferFlux repository "
        "writes.",
        "On dialogues that a generator in the InferFlux repository writes; I was trained from "
        "scratch."],
        [["generator"], ["dialogues"], ["from scratch"]], []),
    ("maker", [
        "who [made|built|created|trained|wrote|programmed|designed] you",
        "who is your [maker|author|creator|developer]",
        "where do you come from", "which company [made|built|owns] you", "who [owns|develops] you",
        "are you [ChatGPT|GPT|Claude|Gemini|Llama|made by OpenAI|from OpenAI]",
    ], ["I was made by the InferFlux project.", "The InferFlux project made me."],
        [["InferFlux project"]], []),
    ("context", [
        "how [long|big|large] is your context", "what is your context [length|size|window]",
        "how many tokens can you [read|remember|see]", "how long is your memory",
        "how much [text|of a conversation] can you [remember|read]",
    ], ["My context is 1024 tokens long.", "I can read 1024 tokens at a time."], [["1024 tokens"]],
        []),
    ("languages", [
        "[which|what] [languages|human languages] do you [speak|know|understand]",
        "do you [speak|know|understand] [English|French|German|Spanish|Chinese|Italian|other "
        "languages|Russian|Japanese]",
        "can you [speak|talk|answer in|write in] [English|French|German|Spanish|Chinese|Italian|"
        "other languages|Russian]",
    ], ["I only speak English.", "English is the only language I speak."], [["English"], ["only"]],
        []),
    ("feel", [
        "how are you[| today| doing| doing today]", "how do you [do|feel]",
        "are you [OK|well|fine|alright]",
        "how's it going", "how is it going[| today]", "what's up", "how have you been",
        "you alright",
        "[I hope you are|hope you're|hope you are] [well|fine|doing well]",
    ], ["I am fine, thank you. What can I do for you?", "I am well, thank you. How can I help?"],
        [["I am fine", "I am well"]], []),
]

CHAT = [
    ("hello", [
        "[hello|hi|hey|hi there|hello there|hey there|good day|greetings|howdy|hiya|yo|hello again|"
        "hi again]"
        "[|| InferFlux| demo|, model| my friend| friend| robot| everyone]",
        "[good] [morning|afternoon|evening][|| InferFlux| my friend| to you]",
        "[hello|hi|hey], [are you there|anybody there|can you hear me|nice to see you|can we talk|"
        "let's talk|do you work]",
        "[hello|hi], [I am new here|I have a question|I want to try you|this is a test|testing]",
        "test", "ping",
        "is [anybody|anyone|somebody] there", "are you there",
        "[hello|hi|hey|good morning|good evening][,|!] [I would like|I want|I'd like] to "
        "[try|test|talk to|meet] [you|this model|InferFlux][| today| a little]",
    ], ["Hello! What can I do for you?", "Hello! How can I help?"], [["Hello!"]], []),
    ("thanks", [
        "[thanks|thank you|many thanks|thx|cheers|thank you very much|thanks a lot|thank you so "
        "much]"
        "[|| for your help| for that| InferFlux| again|, that helps|, very kind]",
        "[that was|that is|very|] [helpful|useful|kind][|, thanks|, thank you]",
        "[thanks|thank you][| so much] for [the answer|your time|explaining|all that|the help]"
        "[| today| my friend| InferFlux]",
        "I [appreciate it|am grateful]",
    ], ["You are welcome.", "You are welcome! Anything else?"], [["You are welcome"]], []),
    ("bye", [
        "[bye|goodbye|bye bye|see you|see you later|see you soon|good night|farewell|cya|take care]"
        "[|| InferFlux| my friend| for now| then]",
        "[I have to go|I must go|I am leaving|I am done|that is all|that's all][| now| for today|, "
        "bye|, goodbye]",
        "[I have to go|I must go|I am leaving|that is all] [now|for today], [bye|goodbye|see you]",
        "[bye|goodbye|good night], [have a nice|enjoy your] [day|evening|weekend|week]",
    ], ["Goodbye!", "Goodbye, and come back soon!"], [["Goodbye"]], []),
    ("praise", [
        "[you are|you're] [great|good|smart|clever|nice|the best|awesome|amazing|cool|funny|"
        "wonderful]",
        "[good|great|nice|excellent|fantastic] [job|work|answer|one]", "well done",
        "[perfect|excellent|great|wow|awesome]",
        "I [like|love] you", "that [is|was] [correct|right|good|great|nice|perfect]",
        "you are a [|very |really ][good|great|clever|nice|helpful] "
        "[model|assistant|friend|helper]",
    ], ["Thank you, that is kind of you.", "Thank you! I do my best."], [["Thank you"]],
        ["I am"]),
    ("blame", [
        "[you are|you're] [wrong|bad|stupid|useless|dumb|terrible|not helpful|mistaken|silly]",
        "that [is|was|'s] [wrong|not right|not correct|incorrect|false|a mistake|nonsense|not "
        "true]",
        "[wrong|bad|terrible] [answer|reply]", "no, that is [wrong|not right|false]",
        "I [hate|don't like] you",
        "you made a [|big |small |silly ]mistake[| there| in your answer]",
        "that is [not|really not] [what I asked|what I wanted|the right answer|correct at all]",
    ], ["I am sorry. I am small and I make mistakes.", "I am sorry about that. I make mistakes."],
        [["I am sorry"], ["mistakes"]], []),
    ("ok", [
        "[ok|okay|all right|alright|I see|got it|understood|fine|sure|cool|good|yes|interesting|"
        "makes sense]"
        "[||, good|, fine|, I see|, understood|, next| then]",
        "[let us|let's] [go on|continue|move on]",
        "[I understand|that makes sense|now I understand|now I see]",
    ], ["Good. What else would you like to know?", "Good. What is next?"], [["Good."]], []),
]
