# Tables of the three worlds beside the chain: theory, consensus, federated. One rule each, one job for each part.
