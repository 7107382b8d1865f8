# What programs of R compute of the rows of models.toml: log-likelihoods at three points, and the mode. `record.py` writes the calls
# of `model` behind this file, one for each row. A row's expression gives a list:
#   loglik: the program's log-likelihood at numbers that have the names of the row's `at`; it may have no arguments beside these
#   mode: the program's own estimates, in the order of `at`. Left out where the job has a prior of a number beside coefficients: the
#     mode is then looked for here, of `loglik` and that prior
#   unit: of a response with a unit, its standard deviation: the priors of errors and of effects are in it
#   package: the program
for (package in c("survival", "MASS", "lme4", "ordinal", "nnet", "pscl", "mvtnorm", "VGAM", "statmod", "glmmTMB")) {
  if (!requireNamespace(package, quietly = TRUE)) {
    message("there is no package ", package)
    quit(status = 0)
  }
}
suppressPackageStartupMessages({
  library(survival)
  library(MASS)
  library(lme4)
  library(ordinal)
})

# Numbers beside coefficients: their coordinates, in which the mode is one, and the priors of these
of_logarithm <- function(name) grepl("^(group_sd|client_sd)\\[|^(sigma|shape|precision|nu|row_sd)$", name)
threshold <- function(name) grepl("^threshold\\[", name)
share <- function(name) name %in% c("structural_zeros", "zero_probability")
to_coordinates <- function(p) {
  name <- names(p)
  x <- p
  x[of_logarithm(name)] <- log(p[of_logarithm(name)])
  x[name == "dispersion"] <- sqrt(p[name == "dispersion"])
  x[share(name)] <- qlogis(p[share(name)])
  t <- which(threshold(name))
  if (length(t) > 1) x[t[-1]] <- log(diff(p[t]))
  x
}
from_coordinates <- function(x) {
  name <- names(x)
  p <- x
  p[of_logarithm(name)] <- exp(x[of_logarithm(name)])
  p[name == "dispersion"] <- x[name == "dispersion"]^2
  p[share(name)] <- plogis(x[share(name)])
  t <- which(threshold(name))
  if (length(t) > 1) p[t] <- cumsum(c(x[t[1]], exp(x[t[-1]])))
  p
}
log_prior <- function(x, unit) {
  name <- names(x)
  half_normal <- function(log_sd) dnorm(exp(log_sd), 0, unit$sd, log = TRUE) + log_sd
  half_student <- function(log_sd) dt(exp(log_sd) / unit$effects, 3, log = TRUE) + log_sd
  of_root <- function(log_number) dcauchy(exp(-log_number / 2), log = TRUE) - log_number / 2 # 1 / sqrt of it is half-Cauchy
  t <- which(threshold(name))
  sum(
    half_normal(x[name == "sigma"]),
    half_student(x[grepl("_sd\\[", name)]),
    of_root(x[name %in% c("shape", "precision")]),
    dgamma(exp(x[name == "nu"]), 2, 0.1, log = TRUE) + x[name == "nu"],
    dcauchy(x[name == "dispersion"], log = TRUE),
    dnorm(x[name == "structural_zeros"], 0, 1.5, log = TRUE),
    dnorm(x[t[-1]], 0, 1.5, log = TRUE)
  )
}
has_prior <- function(name) of_logarithm(name) | name %in% c("dispersion", "structural_zeros") | (threshold(name) & cumsum(threshold(name)) > 1)

# Newton's steps with differences, in units of the curvature
top <- function(f, x) {
  k <- length(x)
  unit <- pmax(abs(x), 1) * 1e-3
  for (step in 1:60) {
    e <- function(i, h) replace(numeric(k), i, h * unit[i])
    at <- f(x)
    near <- sapply(1:k, function(i) c(f(x + e(i, 1)), f(x - e(i, 1)), f(x + e(i, 2)), f(x - e(i, 2))))
    g <- (8 * (near[1, ] - near[2, ]) - (near[3, ] - near[4, ])) / 12
    H <- diag(16 * (near[1, ] + near[2, ]) - (near[3, ] + near[4, ]) - 30 * at, k) / 12
    for (i in seq_len(k)) for (j in seq_len(i - 1)) {
      H[i, j] <- H[j, i] <- (f(x + e(i, 1) + e(j, 1)) - f(x + e(i, 1) - e(j, 1)) - f(x - e(i, 1) + e(j, 1)) + f(x - e(i, 1) - e(j, 1))) / 4
    }
    S <- eigen(-H, symmetric = TRUE)
    values <- pmax(abs(S$values), 1e-3 * max(abs(S$values)) * 1e-6)
    move <- as.numeric(S$vectors %*% (crossprod(S$vectors, g) / values))
    size <- sqrt(abs(sum(g * move)))
    moved <- min(1, 2 / size) * move
    new <- x + moved * unit
    while (!is.finite(f(new)) || f(new) < at - 1e-7) {
      moved <- moved / 2
      new <- x + moved * unit
      if (max(abs(moved)) < 1e-12) break
    }
    x <- new
    if (all(S$values > 0) && size < 1e-6) return(x)
    if (all(S$values > 0)) unit <- unit * pmin(100, pmax(0.01, 0.05 / sqrt(diag(-H)))) # about .05 standard deviations
  }
  stop("no mode")
}

quiet <- function(x) suppressMessages(suppressWarnings(x))
model <- function(name, file, at, factors, make, mode, evaluate) tryCatch({
  d <- read.csv(file, stringsAsFactors = TRUE, na.strings = character(0))
  for (column in names(make)) d[[column]] <- eval(parse(text = make[[column]]), d)
  peer <- quiet(evaluate(d))
  loglik <- function(p) quiet(peer$loglik(setNames(p, names(at))))
  told <- sapply(factors, function(factor) loglik(factor * at))
  found <- rep(NaN, length(at))
  if (mode != "none") {
    found <- peer$mode
    if (mode == "prior" && any(has_prior(names(at)))) {
      unit <- if (is.null(peer$unit)) list(sd = 1, effects = 2.5) else list(sd = peer$unit, effects = peer$unit)
      f <- function(x) { value <- loglik(from_coordinates(x)) + log_prior(x, unit); if (is.finite(value)) value else -1e300 }
      found <- from_coordinates(top(f, setNames(to_coordinates(at), names(at))))
    } else if (is.null(found)) {
      f <- function(x) { value <- loglik(from_coordinates(x)); if (is.finite(value)) value else -1e300 }
      found <- from_coordinates(top(f, setNames(to_coordinates(at), names(at))))
    }
  }
  version <- as.character(packageVersion(peer$package))
  cat(name, paste("R", peer$package), version, paste(format(told, digits = 15), collapse = " "), paste(format(unname(found), digits = 12), collapse = " "), sep = "\t")
  cat("\n")
}, error = function(e) message(name, ": ", conditionMessage(e)))

# Programs, as functions of numbers with the names of `at`: coefficients come first, in the program's own order --------------------

# `logLik` of a glm at any coefficients, by its family's `aic`; without what `aic` adds for a dispersion
of_glm <- function(fit, package = "stats", more = 0) {
  X <- model.matrix(fit)
  offset <- if (is.null(fit$offset)) 0 else fit$offset
  w <- fit$prior.weights
  y <- fit$y
  n <- if (fit$family$family == "binomial") w else rep(1, length(y))
  list(
    package = package, mode = coef(fit),
    loglik = function(p) {
      mu <- fit$family$linkinv(as.numeric(X %*% p[seq_len(ncol(X))]) + offset)
      -fit$family$aic(y, n, mu, w, sum(fit$family$dev.resids(y, mu, w))) / 2 + more
    }
  )
}
of_negative_binomial <- function(formula, d) {
  fit <- glm.nb(formula, d, control = glm.control(epsilon = 1e-12, maxit = 100))
  q <- length(coef(fit))
  list(
    package = "MASS", mode = c(coef(fit), 1 / fit$theta),
    loglik = function(p) {
      one <- fit
      one$family <- negative.binomial(1 / p[["dispersion"]])
      of_glm(one)$loglik(p[seq_len(q)])
    }
  )
}
of_lm <- function(formula, d, w = rep(1, nrow(d))) {
  fit <- do.call(lm, list(formula, d, weights = w))
  y <- model.response(model.frame(fit))
  X <- model.matrix(fit)
  n <- length(y)
  list(
    package = "stats", mode = c(coef(fit), sqrt(mean(w * residuals(fit)^2))), unit = sqrt(mean((y - mean(y))^2)),
    loglik = function(p) sum(dnorm(y, as.numeric(X %*% p[seq_len(ncol(X))]), p[["sigma"]] / sqrt(w), log = TRUE))
  )
}
of_cox <- function(formula, d, ...) {
  more <- list(...)
  call <- function(...) do.call(coxph, c(list(formula, d), more, list(...)))
  list(
    package = "survival", mode = coef(call(control = coxph.control(eps = 1e-14, toler.chol = 1e-15, iter.max = 100))),
    loglik = function(p) call(init = unname(p), control = coxph.control(iter.max = 0))$loglik[2]
  )
}
# Its dispersion is the logarithm of sigma^2 of gaussian rows, and of sigma of Student's
of_sigma <- function(formula, sigma, d, family, ...) {
  fit <- glmmTMB::glmmTMB(formula, dispformula = sigma, data = d, family = family, ...)
  estimates <- fit$fit$par
  times <- ifelse(names(estimates) == "betad" & family$family == "gaussian", 2, 1)
  list(
    package = "glmmTMB", mode = unname(estimates) / times,
    loglik = function(p) -as.numeric(fit$obj$fn(unname(p) * times))
  )
}
# Of the hazard shape t^(shape - 1) exp(eta): survreg's coefficients are -eta's over the shape, its scale 1 / shape
of_survreg <- function(formula, d, entry = NULL, dist = "weibull") {
  at_fixed <- function(formula, p) {
    if (dist != "weibull") {
      b <- unname(p[names(p) != "sigma"])
      return(survreg(formula, d, dist = dist, scale = p[["sigma"]], init = b, control = survreg.control(maxiter = 0))$loglik[2])
    }
    k <- if ("shape" %in% names(p)) p[["shape"]] else 1
    b <- p[names(p) != "shape"]
    survreg(formula, d, dist = "weibull", scale = 1 / k, init = -unname(b) / k, control = survreg.control(maxiter = 0))$loglik[2]
  }
  list(
    package = "survival",
    loglik = function(p) at_fixed(formula, p) - if (is.null(entry)) 0 else at_fixed(entry, p)
  )
}
# A constant hazard between cuts is a Poisson model of the parts of rows' times, whose logarithms are an offset: its
# log-likelihood is larger by the sum of these logarithms over events
of_pieces <- function(formula, d, cuts, time, event, entry = NULL) {
  d$.end <- d[[time]]
  d$.event <- d[[event]]
  d$.begin <- if (is.null(entry)) 0 else d[[entry]]
  parts <- d
  if (length(cuts)) {
    parts <- survSplit(Surv(.begin, .end, .event) ~ ., d, cut = cuts, episode = "piece")
    parts$piece <- factor(parts$piece)
  }
  parts$log_time <- log(parts$.end - parts$.begin)
  full <- update(formula, if (length(cuts)) .event ~ . + piece + offset(log_time) else .event ~ . + offset(log_time))
  fit <- glm(full, poisson, parts, epsilon = 1e-14)
  m <- length(cuts)
  peer <- of_glm(fit, "stats", -sum(parts$log_time[parts$.event == 1]))
  to_glm <- function(p) c(p[seq_len(length(p) - m)], if (m) tail(p, m) - p[[1]])
  b <- coef(fit)
  list(
    package = "stats", loglik = function(p) peer$loglik(to_glm(p)),
    mode = c(b[seq_len(length(b) - m)], if (m) tail(b, m) + b[[1]]), parts = parts
  )
}
# The log-likelihood at given counts' or successes' own means: lme4 leaves it out where nAGQ > 1
saturated <- function(fit) {
  y <- fit@resp$y
  w <- weights(fit)
  switch(family(fit)$family,
    binomial = sum(dbinom(round(y * w), w, y, log = TRUE)),
    poisson = sum(dpois(y, y, log = TRUE)),
    stop("unknown family")
  )
}
of_glmer <- function(formula, d, family, nAGQ = 25, more = 0) {
  tight <- glmerControl(tolPwrss = 1e-13, optimizer = "bobyqa", check.conv.grad = "ignore", optCtrl = list(rhobeg = 0.2, rhoend = 1e-8))
  fit <- glmer(formula, d, family, nAGQ = nAGQ, control = tight)
  deviance_at <- glmer(formula, d, family, nAGQ = nAGQ, control = tight, devFunOnly = TRUE)
  constant <- more + if (nAGQ > 1) saturated(fit) else 0
  q <- length(fixef(fit))
  list(
    package = "lme4", fit = fit,
    loglik = function(p) constant - deviance_at(c(theta_of(fit, p[-seq_len(q)]), p[seq_len(q)])) / 2
  )
}
# lme4's theta, of standard deviations and correlations in the order of `at`, relative to sigma
theta_of <- function(fit, p, sigma = 1) {
  sds <- p[grepl("_sd\\[", names(p))] / sigma
  if (length(sds) == 1 || !any(grepl("_correlation", names(p)))) return(unname(sds))
  r <- p[grepl("_correlation", names(p))]
  unname(c(sds[1], r * sds[2], sqrt(1 - r^2) * sds[2]))
}
# The density of all responses of one normal distribution, with lme4's own matrices
of_lmer <- function(formula, d, order = identity) {
  tight <- lmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-9), calc.derivs = FALSE)
  fit <- lmer(formula, d, REML = FALSE, control = tight)
  y <- getME(fit, "y")
  X <- getME(fit, "X")
  Zt <- getME(fit, "Zt")
  Lambdat <- getME(fit, "Lambdat")
  q <- ncol(X)
  sds <- as.data.frame(VarCorr(fit))
  estimates <- c(order(sds$sdcor[sds$grp != "Residual"]), sigma(fit))
  list(
    package = "lme4", unit = sqrt(mean((y - mean(y))^2)), mode = c(fixef(fit), estimates),
    loglik = function(p) {
      L <- Lambdat
      L@x <- order(theta_of(fit, p[-seq_len(q)], p[["sigma"]]))[getME(fit, "Lind")]
      V <- p[["sigma"]]^2 * (diag(length(y)) + as.matrix(crossprod(L %*% Zt)))
      mvtnorm::dmvnorm(y, as.numeric(X %*% p[seq_len(q)]), V, log = TRUE)
    }
  )
}
# P(y <= k) = F(threshold - eta): coefficients first here, thresholds first there
of_clm <- function(formula, d, link = "logit") {
  fit <- clm(formula, data = d, link = link, control = clm.control(gradTol = 1e-12))
  room <- clm(formula, data = d, link = link, doFit = FALSE)
  alike <- function(p) c(p[threshold(names(p))], p[!threshold(names(p))])
  list(package = "ordinal", mode = c(fit$beta, fit$alpha), loglik = function(p) {
    room$par <- unname(alike(p))
    -room$clm.nll(room)
  })
}
of_clmm <- function(formula, d, link = "logit", nAGQ = 25) {
  room <- clmm(formula, data = d, link = link, nAGQ = nAGQ, doFit = FALSE, control = clmm.control(innerCtrl = "noWarn", gradTol = 1e-12))
  room$ctrl$gradTol <- 1e-12
  list(package = "ordinal", loglik = function(p) {
    sd <- grepl("_sd\\[", names(p))
    beta <- p[!sd & !threshold(names(p))]
    -ordinal:::getNAGQ.ssr(room, unname(c(p[threshold(names(p))], beta, log(p[sd]))))
  })
}
of_zeroinfl <- function(formula, d, dist = "poisson") {
  fit <- pscl::zeroinfl(formula, d, dist = dist, control = pscl::zeroinfl.control(reltol = 1e-15, EM = FALSE))
  q <- length(fit$coefficients$count)
  list(
    package = "pscl",
    loglik = function(p) {
      start <- list(count = unname(p[seq_len(q)]), zero = qlogis(p[["structural_zeros"]]))
      if (dist == "negbin") start$theta <- 1 / p[["dispersion"]]
      pscl::zeroinfl(formula, d, dist = dist, control = pscl::zeroinfl.control(EM = FALSE, maxit = 0, start = start))$loglik
    }
  )
}
of_hurdle <- function(formula, d, dist = "poisson") {
  fit <- pscl::hurdle(formula, d, dist = dist)
  q <- length(fit$coefficients$count)
  list(
    package = "pscl",
    loglik = function(p) {
      start <- list(count = unname(p[seq_len(q)]), zero = -qlogis(p[["zero_probability"]]))
      if (dist == "negbin") start$theta <- c(count = 1 / p[["dispersion"]])
      pscl::hurdle(formula, d, dist = dist, control = pscl::hurdle.control(maxit = 0, start = start))$loglik
    }
  )
}
# A density of a package, of the response, its mean by an inverse link, and the last number
of_density <- function(formula, d, package, density, inverse = exp) {
  X <- model.matrix(formula, d)
  q <- ncol(X)
  list(package = package, loglik = function(p) sum(density(d[[all.vars(formula)[1]]], inverse(as.numeric(X %*% p[seq_len(q)])), p[[q + 1]])))
}
# The effect of each row by lme4, whose group is the row
of_rows <- function(formula, d) {
  peer <- of_glmer(formula, d, poisson)
  list(package = "lme4", loglik = function(p) peer$loglik(setNames(p, sub("row_sd", "group_sd[intercept]", names(p), fixed = TRUE))))
}
of_multinom <- function(formula, d) {
  fit <- nnet::multinom(formula, d, trace = FALSE, reltol = 1e-16, abstol = 1e-16, maxit = 5000)
  X <- model.matrix(formula, d)
  list(package = "nnet", mode = as.numeric(t(coef(fit))), loglik = function(p) {
    # The network's weights: for each level one of a bias that is not there, and those of the columns; all 0 of the first level
    k <- length(fit$lev)
    W <- rbind(0, cbind(0, matrix(p, k - 1, byrow = TRUE)))
    W[1, ] <- 0
    -nnet::multinom(formula, d, trace = FALSE, Wts = as.numeric(t(W)), maxit = 0)$value
  })
}
of_survreg_offset <- function(formula, d, column) {
  # survreg's predictor is minus that of the hazard over the shape, and so is its offset
  list(package = "survival", loglik = function(p) {
    k <- p[["shape"]]
    d$.offset <- -d[[column]] / k
    b <- p[names(p) != "shape"]
    with_offset <- update(formula, ~ . + offset(.offset))
    survreg(with_offset, d, dist = "weibull", scale = 1 / k, init = -unname(b) / k, control = survreg.control(maxiter = 0))$loglik[2]
  })
}
of_pieces_groups <- function(formula, d, cuts, time, event, group) {
  parts <- of_pieces(formula, d, cuts, time, event)$parts
  parts$group <- parts[[group]]
  full <- update(formula, if (length(cuts)) .event ~ . + piece + offset(log_time) + (1 | group) else .event ~ . + offset(log_time) + (1 | group))
  peer <- of_glmer(full, parts, poisson, 25, -sum(parts$log_time[parts$.event == 1]))
  m <- length(cuts)
  from_hazards <- function(p) {
    later <- grepl("^log_hazard", names(p))
    fixed <- p[!later & !grepl("_sd\\[", names(p))]
    c(fixed, if (m) p[later] - p[[1]], p[grepl("_sd\\[", names(p))])
  }
  found <- list(package = "lme4", loglik = function(p) peer$loglik(from_hazards(p)))
  found
}
of_glmer_nb <- function(formula, d) {
  list(package = "lme4", loglik = function(p) {
    theta <- 1 / p[["dispersion"]]
    q <- which(grepl("_sd\\[", names(p)))[1] - 1
    peer <- glmer(formula, d, negative.binomial(theta), nAGQ = 25, devFunOnly = TRUE, control = glmerControl(tolPwrss = 1e-13))
    y <- model.response(model.frame(subbars(formula), d))
    top <- sum(dnbinom(y, theta, mu = y, log = TRUE))
    top - peer(c(p[grepl("_sd\\[", names(p))], p[seq_len(q)])) / 2
  })
}
# The posterior of coefficients under a flat prior and errors of a known standard deviation
of_known_sigma <- function(formula, d, sigma, weights = rep(1, nrow(d))) {
  fit <- do.call(lm, list(formula, d, weights = weights))
  X <- model.matrix(fit)
  y <- model.response(model.frame(fit))
  list(
    package = "stats", mode = coef(fit),
    loglik = function(p) sum(weights * dnorm(y, as.numeric(X %*% p), sigma, log = TRUE))
  )
}
