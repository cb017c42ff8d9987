// Package preview says what a launch would do, and does nothing of it.
//
// A [Plan] is assembled from what was read before: the resolved configuration, what of the surroundings a launch asks for, and what was
// found at the endpoint ([Look], the one part that talks to anybody). [Assemble] is a pure function. [Plan.Text] and [Plan.JSON] tell people and programs
// the same.
//
// What only a rendezvous decides, such as ranks of a job on several nodes, is not guessed: workers are imagined in two rounds that differ in
// all that is not known yet, and what comes out differently is left open.
package preview
