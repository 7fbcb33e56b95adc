package configs

// Machine is what there is of each resource. A zero figure is unknown and is not checked.
type Machine struct {
	Cores   float64
	Memory  int64 // bytes
	Disk    int64 // bytes
	Network int64 // bits a second
}

// Options is all that checking needs to know of its surroundings; nothing is read from the environment.
type Options struct {
	DataDir string // the server's data directory: no trigger may watch inside it; empty is unknown
	Machine Machine
	// Budget is what stages may use of the machine; where it has no figure they may use what the machine has.
	Budget Machine
	// LookPath finds a program, as exec.LookPath does; nil leaves E_EXEC_NOTFOUND unchecked.
	LookPath func(file string) (string, error)
	// Tasks are the names of the registered tasks; nil leaves task names unchecked.
	Tasks []string
	// Plugins are the names of further executors that a stage may use as a key.
	Plugins []string
	// CheckFiles also checks what is outside the definition: that watched directories exist.
	// The files that belong to a definition (contracts, scripts) are read always, since the plan embeds them.
	CheckFiles bool

	above []string // pipelines whose stages run this one
}
