package cmd

import (
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/schedule"
)

// amount is a flag for a figure of the budget, written as definitions write it. Its zero value says nothing.
type amount struct {
	kind  string
	parse func(string) (int64, error)
	show  func(int64) string
	to    *int64
}

// String implements pflag.Value.
func (f amount) String() string {
	if f.to == nil || *f.to == 0 {
		return ""
	}
	return f.show(*f.to)
}

// Set implements pflag.Value.
func (f amount) Set(text string) (err error) {
	*f.to, err = f.parse(text)
	return err
}

// Type implements pflag.Value.
func (f amount) Type() string { return f.kind }

// cores is a flag for a number of cores.
type cores struct{ to *float64 }

// String implements pflag.Value.
func (f cores) String() string {
	if f.to == nil || *f.to == 0 {
		return ""
	}
	return strconv.FormatFloat(*f.to, 'f', -1, 64)
}

// Set implements pflag.Value.
func (f cores) Set(text string) error {
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && !(n >= 0 && n <= 100_000) {
		err = strconv.ErrRange
	}
	if err == nil {
		*f.to = n
	}
	return err
}

// Type implements pflag.Value.
func (f cores) Type() string { return "cores" }

// budgetFigures are the figures of the budget that can be configured, by the name of their flag.
func budgetFigures(b *schedule.Budget) []struct {
	name, variable, usage string
	value                 pflag.Value
} {
	return []struct {
		name, variable, usage string
		value                 pflag.Value
	}{
		{"cpu", "APOLLO_BUDGET_CPU", "flag.cpu", cores{&b.CPU}},
		{"memory", "APOLLO_BUDGET_MEMORY", "flag.memory", amount{"size", configs.ParseSize, configs.SizeText, &b.Memory}},
		{"disk", "APOLLO_BUDGET_DISK", "flag.disk", amount{"size", configs.ParseSize, configs.SizeText, &b.Disk}},
		{"network", "APOLLO_BUDGET_NETWORK", "flag.network", amount{"rate", configs.ParseRate, configs.RateText, &b.Network}},
	}
}

// budgetFlags adds the flags that say what stages may use together.
func (a *app) budgetFlags(c *cobra.Command) {
	for _, f := range budgetFigures(&a.configured) {
		c.Flags().Var(f.value, f.name, f.usage)
	}
}

// checkBudget takes from the environment what no flag says.
func (a *app) checkBudget() error {
	var fromEnv schedule.Budget
	for _, f := range budgetFigures(&fromEnv) {
		if text := a.env(f.variable); text != "" {
			if err := f.value.Set(text); err != nil {
				return a.usageError("usage.variable", lang.Data{"Name": f.variable, "Value": text, "Type": f.value.Type()})
			}
		}
	}
	overlay(&fromEnv, a.configured)
	a.configured = fromEnv
	return nil
}

// overlay puts the figures that are said over those of b.
func overlay(b *schedule.Budget, said schedule.Budget) {
	if said.CPU > 0 {
		b.CPU = said.CPU
	}
	for _, f := range []struct{ to, from *int64 }{{&b.Memory, &said.Memory}, {&b.Disk, &said.Disk}, {&b.Network, &said.Network}} {
		if *f.from > 0 {
			*f.to = *f.from
		}
	}
}

// budget says what the machine has and what stages may use of it together: what is configured, else the machine less its
// headroom.
func (a *app) budget() (machine, stages schedule.Budget) {
	m := executor.ReadMachine(a.data)
	machine = schedule.Budget{CPU: m.Cores, Memory: m.Memory, Disk: m.Disk}
	stages = schedule.BudgetOf(machine)
	overlay(&stages, a.configured)
	return machine, stages
}

func machineOf(b schedule.Budget) configs.Machine {
	return configs.Machine{Cores: b.CPU, Memory: b.Memory, Disk: b.Disk, Network: b.Network}
}
