// Package device holds what workers tell each other of their devices: which there are, and which device of one worker
// corresponds to which of another. It validates what all have told and derives what each needs of it (seed 004). All of
// it is pure.
package device
