"""Every message of Contrail on the wire: who sends it, who takes it, and the section of the paper.

Machines check what has come against these before they look at it. Nothing here can be decrypted: what is
sealed or encrypted is bytes.
"""
