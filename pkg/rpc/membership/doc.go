// Package membership forms groups of workers that call each other. Its only medium is a [kvstore.Store].
//
// A static group has a fixed world size and forms once every rank has arrived ([FormStatic]). A dynamic group has no
// size; members join and leave at any time ([Dynamic]). [Work] counts a member's outstanding calls, so that a group can
// end when no call is outstanding.
//
// The package does not know how members reach each other; a dynamic group gets that as [Peers]. All exported methods
// may be called concurrently.
package membership
