package configs

// Executors are the names of the executors that the language knows by itself; a plugin's name is one more.
func Executors() []string {
	return []string{"shell", "python", "container", "http", "task", "pipeline", "approval"}
}

// executorKeys are the keys of a stage that say what carries it out: run is short for shell.
func executorKeys() []string { return append([]string{"run"}, Executors()...) }

// schemes are the ways in which a webhook's sender proves itself.
var schemes = []string{"github", "gitlab", "stripe", "slack", "standard", "shopify", "hex", "none"}

// formats are what data can be read as; a role without one is bytes, on which no contract can be checked.
var formats = []string{"csv", "tsv", "json", "ndjson", "bytes"}

var language = pipelineSpec()

func pipelineSpec() *spec {
	return object("One pipeline.",
		must("name", as(nameForm, "The pipeline's name, unique in its directory.")),
		key("description", as(textForm, "What the pipeline is for, in any language.")),
		key("params", dict("Parameters of a run: command line, API and web form come from them.",
			as(schemaForm, "JSON Schema of the parameter; title and description are shown, default makes it optional."))),
		key("on", list("What starts a run, besides a person.", triggerSpec())),
		key("contracts", dict("Schemas that data must meet, by name.", &spec{form: objectForm, one: true,
			doc: "JSON Schema; for CSV it describes one row as an object.",
			fields: []field{
				key("file", as(fileForm, "A JSON Schema file, relative to the definition; it is embedded in the plan.")),
				key("schema", as(schemaForm, "The JSON Schema itself.")),
			}})),
		key("concurrency", object("How many runs of a group go at once.",
			preset("group", "the pipeline's name", as(valueForm, "The group's name, or one ${{ expression }} over params and trigger; pipelines may share one.")),
			preset("max", "1", number(integerForm, 1, 10_000, "Runs at once.")),
			preset("overflow", "queue", oneOf("What happens to a run past the bound.", "queue", "skip", "cancel_oldest")))),
		key("deadline", as(durationForm, "A run that takes longer is cancelled.")),
		preset("priority", "0", number(integerForm, -100, 100, "Where runs or stages wait, those of a higher number go first.")),
		key("outputs", dict("What a run gives to the stage that started it.", as(valueForm, "One ${{ expression }} over the outputs of its stages."))),
		must("stages", dict("The stages by name. Their order in the file decides nothing but ties.", stageSpec())),
	)
}

func triggerSpec() *spec {
	return &spec{form: objectForm, one: true, doc: "One trigger.", fields: []field{
		key("webhook", webhookSpec()),
		key("file", object("A run for each file that arrives.",
			must("watch", as(textForm, "A path with wildcards in its last part, relative to the definition.")),
			preset("settle", "2s", from0("How long size and time must stand still; 0s for files that arrive by rename.")),
			preset("allow_empty", "false", as(booleanForm, "Whether a file of 0 bytes makes a run.")))),
		key("cron", object("A run at each instant of a schedule.",
			must("schedule", as(textForm, "Five fields: minute, hour, day (1-31), month, weekday. L, W and # are known.")),
			preset("timezone", "UTC", as(textForm, "A name of the IANA time zone database.")),
			preset("missed", "last", oneOf("Instants missed while the server was down.", "skip", "last", "all")),
			preset("overlap", "queue", oneOf("What happens while the previous run goes on.", "queue", "skip", "parallel")))),
		key("pipeline", object("A run when a run of another pipeline ends.",
			must("name", as(nameForm, "The other pipeline.")),
			preset("outcome", "completed", oneOf("The end that counts.", "completed", "failed", "cancelled", "any")))),
		key("event", object("A run for each event of a type.",
			must("type", as(textForm, "The event's type, as apollo.alert.raised.v1.")),
			key("if", as(conditionForm, "A condition over `event`.")))),
	}}
}

func webhookSpec() *spec {
	return object("A run for each verified post on /hooks/<path>.",
		must("path", as(nameForm, "The last part of the address.")),
		key("verify", choice("How the sender proves itself; `none` says outright that it does not.",
			oneOf("`none`: anybody may start a run.", "none"),
			object("A signature scheme and its secret.",
				must("scheme", oneOf("Whose signature it is.", schemes...)),
				key("secret", as(textForm, "A reference, secret://name; never the secret itself."))))),
		key("key", as(textForm, "Where the idempotency key stands, header:<Name>; else the scheme's own, else the body's digest.")),
		preset("max_body", "25Mi", as(sizeForm, "The largest body that is accepted.")))
}

func stageSpec() *spec {
	s := object("One stage: exactly one executor, and what it needs.")
	s.executors = true
	s.fields = append(executorFields(),
		key("needs", list("Strong: waits until they completed; their failure stops this stage.", as(nameForm, "A stage."))),
		key("prefers", list("Weak: a wish of order only; no data may cross it.", as(nameForm, "A stage."))),
		key("when", as(conditionForm, "The stage is skipped unless this holds.")),
		preset("always", "false", as(booleanForm, "Runs whatever became of its needs.")),
		preset("may_fail", "false", as(booleanForm, "Its failure does not fail the run.")),
		key("foreach", as(conditionForm, "A list: one instance per item, `item` in expressions.")),
		key("delay", as(durationForm, "How long the stage waits once it is ready.")),
		key("inputs", dict("What the stage reads, by role: APOLLO_IN_<ROLE> holds the file's path.", inputSpec())),
		key("outputs", dict("What the stage writes, by role.", outputSpec())),
		key("env", &spec{form: dictForm, envNames: true, doc: "Environment variables.", each: as(valueForm, "Text, or one ${{ expression }}.")}),
		key("secrets", &spec{form: dictForm, envNames: true, doc: "Environment variables that hold secrets.",
			each: as(textForm, "A reference, secret://name.")}),
		key("timeout", as(durationForm, "An attempt that takes longer is ended.")),
		preset("grace", "10s", from0("Between the request to end and the kill.")),
		key("retry", retrySpec()),
		key("resources", object("What the stage asks of the machine.",
			key("cpu", number(numberForm, 0.001, 100_000, "Cores.")),
			key("memory", as(sizeForm, "Bytes.")), key("disk", as(sizeForm, "Bytes.")),
			key("network", as(rateForm, "Bandwidth.")))),
		key("reconcile", list("Compares what came in with what went out.", object("One comparison.",
			must("from", as(textForm, "inputs.<role> or outputs.<role>.")), must("to", as(textForm, "inputs.<role> or outputs.<role>.")),
			must("expect", as(conditionForm, "A condition over `from` and `to`.")),
			preset("level", "error", oneOf("Whether a difference fails the stage.", "error", "warning"))))),
		key("gate", list("Acceptance criteria: not met, the next stage does not start.", object("One criterion.",
			must("check", as(conditionForm, "A condition over `inputs` and `outputs`.")),
			key("message", as(textForm, "What people read when it is not met."))))),
		preset("isolation", "observe", isolationSpec()),
		preset("network", "allow; none for a container and with isolation: enforce", oneOf("Whether the stage may use the network. Where it is not said, apollo verify does without.", "none", "allow")),
		key("deterministic", as(booleanForm, "What you promise of the result. true: with isolation: enforce and network: none, another run with the same pins takes it over; "+
			"false: apollo verify leaves the stage out, and says so.")),
		preset("clock", "run", oneOf("`fixed`: the stage sees the same logical time and seed in every run.", "run", "fixed")),
		key("compare", compareSpec()))
	return s
}

func inputSpec() *spec {
	return choice("A literal, one ${{ expression }}, or a map.",
		as(valueForm, "A literal or one ${{ expression }}."),
		object("An input with a format or a contract, or from the machine.",
			key("from", as(valueForm, "A literal or one ${{ expression }}.")),
			key("file", as(textForm, "Instead of from: a file or directory of the machine, relative to the definition. Its content is taken in when the attempt begins.")),
			key("format", oneOf("The data's format; else that of the output it comes from.", formats...)),
			key("contract", as(nameForm, "The contract it must meet."))))
}

func outputSpec() *spec {
	s := object("A file when path is set, else a small value written to $APOLLO_OUTPUTS with the keywords of JSON Schema beside it.",
		key("path", as(textForm, "A path below the stage's out directory; with a slash at its end, a directory and all that is in it.")),
		key("format", oneOf("The file's format; with a contract, else by its name.", formats...)),
		key("contract", as(nameForm, "The contract it must meet.")),
		preset("optional", "false", as(booleanForm, "Whether it may be missing.")),
		key("key", list("Columns by which apollo diff finds the same row in two tables.", as(textForm, "A column."))),
		key("schema", as(schemaForm, "JSON Schema of a value.")))
	s.schemaKeys = true
	return s
}

func retrySpec() *spec {
	return object("When a failed attempt is tried again. Off unless declared.",
		must("max", number(integerForm, 0, 1000, "Attempts after the first.")),
		preset("interval", "by kind of work", from0("Before the first retry.")),
		preset("backoff", "1", number(numberForm, 1, 100, "Factor for each further interval.")),
		key("max_interval", from0("The longest interval.")),
		preset("jitter", "0", number(numberForm, 0, 1, "Random share of the interval, seeded from the run.")),
		key("on", list("Failure classes, exit:<code>, http:<status>, http:5xx and http:connect; else every class but bad_input and cancelled.",
			as(textForm, "A class, exit:<code>, http:<status>, http:4xx, http:5xx, or http:connect when no answer came."))))
}

func executorFields() []field {
	values := list("Arguments, each handed over as one.", as(valueForm, "Text or one ${{ expression }}."))
	return []field{
		key("run", as(scriptForm, "A shell script; its first line may name the interpreter (#!).")),
		key("shell", object("A shell script in a file.", must("script", as(fileForm, "The script, relative to the definition.")))),
		key("python", choice("Python code, or a map.", as(scriptForm, "Python code."), object("A Python program.",
			must("script", as(fileForm, "The program, relative to the definition.")), key("args", values),
			key("requirements", as(fileForm, "A lock file, relative to the definition: every package as name==version, its dependencies too.")),
			key("interpreter", as(textForm, "The interpreter, as python3.12."))))),
		key("container", object("A container.",
			must("image", as(textForm, "The image; a digest pins it, as in alpine@sha256:....")), key("command", values), key("entrypoint", values),
			preset("pull", "missing", oneOf("When the image is fetched.", "missing", "always", "never")),
			preset("user", "the engine's own", as(valueForm, "The user inside.")),
			preset("workdir", "/apollo/out", as(textForm, "The directory inside.")))),
		key("http", httpSpec()),
		key("task", choice("A registered Go function.", as(nameForm, "The task's name."), object("A task with settings.",
			must("name", as(nameForm, "The task's name.")), key("with", as(anyForm, "The task's settings."))))),
		key("pipeline", choice("A run of another pipeline.", as(nameForm, "The pipeline's name."), object("A run with parameters.",
			must("name", as(nameForm, "The pipeline's name.")),
			key("params", dict("Its parameters.", as(anyForm, "A value or one ${{ expression }}.")))))),
		key("approval", choice("Waits for a person.", as(textForm, "What is asked."), object("A question with settings.",
			must("message", as(textForm, "What is asked.")),
			key("approvers", list("Who may answer; else everybody who may control the engine.", as(textForm, "The name of a user of the system."))),
			key("form", dict("What the answer has to say: outputs of the stage with the same names take it.", as(schemaForm, "JSON Schema of the field."))),
			preset("on_timeout", "fail", oneOf("What it means that nobody answered within the stage's time-out.", "fail", "approve", "reject"))))),
	}
}

func httpSpec() *spec {
	secrets := func(what string) *spec {
		return &spec{form: dictForm, anyKeys: true, doc: what + ", by the variables under secrets: that hold their values.", each: as(textForm, "A variable under secrets: of the stage.")}
	}
	values := func(what string) *spec {
		return &spec{form: dictForm, anyKeys: true, doc: what + "; one whose expression gives null is left out.", each: as(valueForm, "Text or one ${{ expression }}.")}
	}
	return object("One HTTP request. Its answer becomes the outputs: a file with the body, or the values status, headers and body.",
		preset("method", "GET", oneOf("The method.", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")),
		must("url", as(valueForm, "The address, http or https; addresses of the own network are refused unless the operator allows them.")),
		key("headers", values("Headers")), key("query", values("Query parameters, added to those of url")),
		key("body", as(anyForm, "The body: text is sent as it is, anything else as JSON.")),
		key("body_from", as(nameForm, "The input whose content is the body.")),
		key("expect", list("Status codes that count as success; else 200 to 299. A redirect that is listed is not followed.", number(integerForm, 100, 599, "A status code."))),
		key("auth", &spec{form: objectForm, one: true, doc: "How the request proves itself; dropped on a redirect to another host.", fields: []field{
			key("bearer", as(textForm, "The variable under secrets: that holds the token.")),
			key("basic", object("User and password.", must("user", as(valueForm, "The user's name.")),
				must("password", as(textForm, "The variable under secrets: that holds the password.")))),
		}}),
		key("secret_headers", secrets("Headers that are secret")), key("secret_query", secrets("Query parameters that are secret")),
		preset("max_body", "1Gi", as(sizeForm, "The largest body of an answer that is taken.")))
}
