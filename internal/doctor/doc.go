// Package doctor checks whether a machine is fit for a launch.
//
// What is read ([Facts]) and what is thought of it ([Judge]) are apart: judgements are pure functions over values, and readers only read. Each
// judgement is a [Check]: its name, ok, warn or fail, the value, and what to do. A check fails only where a launch is sure to fail, or would train on broken
// hardware; what may be meant so, or may pass, is a warning.
package doctor
