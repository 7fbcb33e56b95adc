package configs

import "slices"

// Code is one kind of problem and what it means, in one line each.
type Code struct {
	Name    string `json:"code"`
	English string `json:"en"`
	Chinese string `json:"zh"`
}

// Codes gives every code that this package reports, sorted by name.
func Codes() []Code { return slices.Clone(codes) }

// ExplainCode gives the meaning of one code.
func ExplainCode(name string) (Code, bool) {
	i, found := slices.BinarySearchFunc(codes, name, func(c Code, name string) int {
		if c.Name < name {
			return -1
		} else if c.Name > name {
			return 1
		}
		return 0
	})
	if !found {
		return Code{}, false
	}
	return codes[i], true
}

var codes = []Code{
	{"E_BLANK", "A blank of a template is unknown, has no value, or has one that its schema does not allow.", "模板的空白未知、没有值,或值不符合它的模式。"},
	{"E_CONTRACT", "A schema is wrong in itself, is missing, or has no format to be checked on.", "契约(模式)本身有错、缺失,或没有可供校验的格式。"},
	{"E_CRLF", "A script has Windows line endings, which no Unix interpreter accepts.", "脚本使用 Windows 换行符,Unix 解释器无法执行。"},
	{"E_CRON", "A cron schedule can't be read; it has five fields.", "cron 表达式无法解析;它应有五个字段。"},
	{"E_CRON_NEVER", "A cron schedule names a date that never comes.", "cron 表达式指定的日期永远不会出现。"},
	{"E_CYCLE", "Stages wait for each other in a circle.", "阶段之间循环等待。"},
	{"E_DEFAULT", "The default of a parameter breaks the parameter's own schema.", "参数的默认值不符合它自己的模式。"},
	{"E_DUP_PIPELINE", "Two files define a pipeline of the same name.", "两个文件定义了同名的流水线。"},
	{"E_DUP_STAGE", "Two stages have the same name, perhaps in another case.", "两个阶段同名(可能只是大小写不同)。"},
	{"E_DURATION", "A duration is not in Go's syntax; there is no unit for days.", "时长不符合 Go 语法;没有“天”这个单位。"},
	{"E_ENCODING", "The file is not text in UTF-8.", "文件不是 UTF-8 文本。"},
	{"E_ENV_NAME", "An environment variable has a name that may not be set.", "环境变量使用了不允许设置的名称。"},
	{"E_EXECUTOR", "A stage says nothing, or more than one thing, about what carries it out.", "阶段没有指定执行器,或指定了多个。"},
	{"E_EXEC_NOTFOUND", "The program that a stage needs is not on this machine.", "本机找不到阶段所需的程序。"},
	{"E_EXPR", "An expression has a fault of syntax, name or type, or stands where none may.", "表达式有语法、名称或类型错误,或出现在不允许的位置。"},
	{"E_EXPR_COST", "An expression is too large or could take too many steps.", "表达式过大,或可能需要过多步骤。"},
	{"E_FIELD", "A key is not part of the language.", "该键不属于流水线语言。"},
	{"E_FILE", "A file that belongs to the definition can't be read.", "无法读取定义所引用的文件。"},
	{"E_HOOK_DUP", "Two webhooks have the same path.", "两个 webhook 使用同一路径。"},
	{"E_HOOK_OPEN", "A webhook accepts posts from anybody.", "webhook 接受任何人的请求。"},
	{"E_HOOK_VERIFY", "A webhook does not say how its sender is verified.", "webhook 没有说明如何验证发送方。"},
	{"E_HTTP_BODY", "A request has a body though its method has no use for one.", "该请求方法不使用正文,却带有正文。"},
	{"E_HTTP_HEADER", "A header has a name or a value that no request may have, or is set twice.", "请求头的名称或取值不允许,或被设置了两次。"},
	{"E_HTTP_OUTPUT", "An http stage declares an output that no answer has.", "http 阶段声明了响应中不存在的输出。"},
	{"E_HTTP_PLAIN", "A secret would travel over plain http.", "密钥将通过未加密的 http 传输。"},
	{"E_IMAGE", "The image of a container stage has a wrong name, or cannot be had.", "容器阶段的镜像名称有误,或无法取得该镜像。"},
	{"E_IMAGE_TAG", "An image is named by a tag, which can be moved to other contents; only a digest pins it.", "镜像仅以标签命名,标签可能指向别的内容;只有摘要才能固定镜像。"},
	{"E_IMPLICIT_DEP", "A stage reads an output of a stage that it does not need.", "阶段读取了未声明为依赖的阶段的输出。"},
	{"E_LOCK", "A Python lock file leaves something open; every line must be name==version.", "Python 锁定文件未完全固定;每一行都必须是 name==version。"},
	{"E_NAME", "A name has characters that are not allowed, or two names become one environment variable.", "名称含有不允许的字符,或两个名称对应同一环境变量。"},
	{"E_NETWORK_NONE", "A stage makes a request and has no network.", "阶段要发出请求,但没有网络权限。"},
	{"E_NOT_YET", "The definition is right, but this version can't run this part of it.", "定义正确,但此版本尚不能运行这一部分。"},
	{"E_ONE", "Exactly one of several keys must be given.", "多个键中必须且只能给出一个。"},
	{"E_PARAM", "A parameter of a run is unknown, missing or breaks its schema.", "运行参数未知、缺失或不符合模式。"},
	{"E_PATH", "A path leaves the directory that it belongs to.", "路径超出了它所属的目录。"},
	{"E_PIPE_EMPTY", "The file holds no pipeline.", "文件中没有流水线。"},
	{"E_PLUGIN_SKIPPED", "A stage uses a plug-in that is broken and was left out; apollo plugin list says why.", "阶段使用的插件有问题,已被跳过;apollo plugin list 会说明原因。"},
	{"E_PLUGIN_WITH", "The settings of a stage break the schema of its plug-in.", "阶段的设置不符合插件的模式。"},
	{"E_RANGE", "A number, duration or size is out of its range.", "数字、时长或大小超出范围。"},
	{"E_REF", "A name refers to something that does not exist.", "引用的名称不存在。"},
	{"E_REQUIRED", "A key that must be given is missing.", "缺少必需的键。"},
	{"E_RESOURCE", "A stage asks for more than the machine has.", "阶段申请的资源超过本机所有。"},
	{"E_SECRET_INLINE", "A secret is written into the file; only references are allowed.", "密钥被直接写入文件;只允许引用。"},
	{"E_SECRET_REF", "A secret is not a reference of the form secret://name.", "密钥不是 secret://name 形式的引用。"},
	{"E_SIZE", "The file or a map in it is too large.", "文件或其中的映射过大。"},
	{"E_SIZE_UNIT", "A size or bandwidth can't be read.", "大小或带宽无法解析。"},
	{"E_TEMPLATE", "A template is wrong in itself: a blank stands where no value may, or nowhere.", "模板本身有错:空白出现在不允许的位置,或未被使用。"},
	{"E_TEMPLATE_IN_SHELL", "A script holds a template; values reach scripts as files and environment only.", "脚本中含有模板;值只能通过文件和环境变量传入脚本。"},
	{"E_TRIGGER_LOOP", "Pipelines trigger each other in a circle.", "流水线之间循环触发。"},
	{"E_TYPE", "A value has another type than is due, or YAML readers disagree about it.", "值的类型不对,或不同 YAML 解析器对它的理解不同。"},
	{"E_TZ", "A time zone is not in the IANA database.", "时区不在 IANA 数据库中。"},
	{"E_URL", "An address is no absolute http or https address with a host, or holds a user.", "地址不是带主机名的完整 http 或 https 地址,或其中含有用户名。"},
	{"E_VALUE", "A value is not among those allowed.", "值不在允许范围内。"},
	{"E_WATCH", "A watched path is missing, too wide, or would trigger itself.", "监视路径不存在、过宽或会触发自身。"},
	{"E_YAML_ALIAS", "The file uses YAML anchors, aliases, tags or merge keys.", "文件使用了 YAML 锚点、别名、标签或合并键。"},
	{"E_YAML_DEPTH", "Maps and lists are nested too deep.", "映射和列表嵌套过深。"},
	{"E_YAML_DUP", "A key stands twice in one map.", "同一映射中键重复。"},
	{"E_YAML_MULTI", "The file holds several YAML documents.", "文件包含多个 YAML 文档。"},
	{"E_YAML_SYNTAX", "The file is not well-formed YAML.", "文件不是格式正确的 YAML。"},
}
