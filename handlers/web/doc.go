// Package web is the HTTP side: the control API under /api/v1 and the health pages. It declares the small interfaces
// that it needs itself.
package web
