"""Parts that any package needs: errors, files, folders, compilation, plug-ins and source code."""
