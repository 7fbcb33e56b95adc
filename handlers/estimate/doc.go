// Package estimate computes from a pipeline's history what its runs take and what to ask for: quantiles of time, memory
// and data, the critical path, the workers for a rate, time-outs and resources. It is pure: events go in, figures come out.
package estimate
