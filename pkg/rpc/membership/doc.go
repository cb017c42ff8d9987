// Package membership decides who is in a group of workers that call each other, over a [kvstore.Store]. In a static
// group all ranks of a known world size meet; a dynamic one has no size, and members join and leave. How members reach each
// other is not known here.
package membership
