// Package router is the only place that wires Watermill: the list of handlers, the list of middleware and the bus
// between them. Its Engine turns what arrives (deliveries, results, cancels, due instants) into units of work: each is
// handled with no transaction open, cascades until only stage bodies remain to be started, and is committed at once.
package router
