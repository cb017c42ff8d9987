// Package interpreter finds the Python interpreter that runs the training script, and describes it.
//
// [Find] chooses the interpreter. [Inspect] reads from files alone what an interpreter can import: it executes nothing,
// neither the interpreter nor a .pth file, so reports and previews may use it on any interpreter. [Another] suggests an
// interpreter that the launch did not choose. [Ask] starts the interpreter that was chosen; only checks of a machine
// call it, never a launch.
//
// The environment is read through a function with the signature of [os.LookupEnv]. The package keeps no state, so all
// functions may be called concurrently.
package interpreter
