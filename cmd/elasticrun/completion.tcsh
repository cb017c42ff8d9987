# tcsh completion for elasticrun: it reads the line from COMMAND_LINE, which tcsh sets.
complete elasticrun 'p@*@`elasticrun __completeTcsh`@@'
