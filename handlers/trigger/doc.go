// Package trigger turns what happens outside (an HTTP post, a dropped file, a command) into deliveries.
package trigger
