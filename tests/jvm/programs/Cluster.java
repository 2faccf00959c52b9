// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Cluster - k-means, by the Commons Math library
 *
 *   java -cp commons-math3.jar Cluster POINTS CLUSTERS SEED
 *
 * Points around known centres, each an object of its own. Every cluster's centre
 * has to be the mean of its points, and every point has to be nearest to its own
 * cluster's centre, or the last turn would not have been the last. Prints "ok" and
 * a sum.
 */
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import org.apache.commons.math3.ml.clustering.CentroidCluster;
import org.apache.commons.math3.ml.clustering.DoublePoint;
import org.apache.commons.math3.ml.clustering.KMeansPlusPlusClusterer;
import org.apache.commons.math3.ml.distance.EuclideanDistance;
import org.apache.commons.math3.random.Well19937c;

public final class Cluster {
    private static final int DIMENSIONS = 8;
    private static final int TURNS = 10_000;

    private static double distance(double[] a, double[] b) {
        double sum = 0;
        for (int d = 0; d < DIMENSIONS; d++) {
            sum += (a[d] - b[d]) * (a[d] - b[d]);
        }
        return sum;
    }

    public static void main(String[] args) {
        int points = Integer.parseInt(args[0]), clusters = Integer.parseInt(args[1]);
        long seed = Long.parseLong(args[2]);
        SplittableRandom random = new SplittableRandom(seed);
        double[][] centres = new double[clusters][DIMENSIONS];
        for (double[] centre : centres) {
            for (int d = 0; d < DIMENSIONS; d++) {
                centre[d] = 1000 * random.nextDouble();
            }
        }
        List<DoublePoint> all = new ArrayList<>();
        for (int i = 0; i < points; i++) {
            double[] at = centres[random.nextInt(clusters)].clone();
            for (int d = 0; d < DIMENSIONS; d++) {
                at[d] += 600 * random.nextDouble();
            }
            all.add(new DoublePoint(at));
        }
        List<CentroidCluster<DoublePoint>> found = new KMeansPlusPlusClusterer<DoublePoint>(
                clusters, TURNS, new EuclideanDistance(), new Well19937c(seed)).cluster(all);
        int held = 0;
        double spread = 0;
        for (CentroidCluster<DoublePoint> cluster : found) {
            double[] mean = new double[DIMENSIONS], centre = cluster.getCenter().getPoint();
            for (DoublePoint point : cluster.getPoints()) {
                double own = distance(point.getPoint(), centre);
                for (CentroidCluster<DoublePoint> other : found) {
                    if (distance(point.getPoint(), other.getCenter().getPoint()) < own - 1e-6) {
                        throw new AssertionError("a point is nearer to another centre");
                    }
                }
                for (int d = 0; d < DIMENSIONS; d++) {
                    mean[d] += point.getPoint()[d] / cluster.getPoints().size();
                }
                spread += own;
                held++;
            }
            if (distance(mean, centre) > 1e-6) {
                throw new AssertionError("a centre is not the mean of its points");
            }
        }
        if (held != points) {
            throw new AssertionError(held + " of " + points + " points are in clusters");
        }
        System.out.println("ok " + Math.round(spread));
    }
}
