// Package bench measures Apollo beside the physical limits of the machine, in one run: limit, product, limit. Every
// figure is taken on a real store with everything switched on, and counts only if nothing was lost: the process that
// did the work is killed, the store is opened again, and the counts must agree.
package bench
